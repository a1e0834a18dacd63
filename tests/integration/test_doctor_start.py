"""What serves refuses a role that the tenant fence does not hold, and starts without a database (K71)."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import pytest
from django.core import checks as django_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections
from django.db.backends.signals import connection_created
from psycopg import sql

from approvals import checks
from approvals.checks import UnfencedRoleError
from tests import conftest, engines
from tests.command_line import ROOT, address, manage
from tests.live import connected_to
from tests.sandbox_process import free_port, wait_until

pytestmark = pytest.mark.usefixtures("db")

NOWHERE = "postgresql://second_key_app@127.0.0.1:1/none"
WEB = ("uvicorn", "approvals.asgi:application", "--log-level", "warning")
WSGI = ("uvicorn", "--interface", "wsgi", "approvals.wsgi:application", "--log-level", "warning")
WORKER = (
    "celery",
    "-A",
    "approvals.celery",
    "worker",
    "--pool=threads",
    "--concurrency=1",
    "-Q",
    "nobody-writes-here",
)


def to_main(url: str) -> str:
    """The same server and role, in the database of this run."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{conftest.MAIN}"))


@contextmanager
def role(options: str) -> Iterator[str]:
    """The address of a role with these options, for as long as it is needed."""
    name, password = f"start_{secrets.token_hex(4)}", secrets.token_hex(8)
    with psycopg.connect(engines.current().superuser_url, autocommit=True) as superuser:
        superuser.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} " + options).format(
                sql.Identifier(name), sql.Literal(password)
            )
        )
        superuser.execute(
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(
                sql.Identifier(conftest.MAIN), sql.Identifier(name)
            )
        )
        try:
            parts = urlsplit(address())
            yield urlunsplit(parts._replace(netloc=f"{name}:{password}@{parts.hostname}:{parts.port}"))
        finally:
            superuser.execute(
                sql.SQL("REVOKE ALL ON DATABASE {} FROM {}").format(
                    sql.Identifier(conftest.MAIN), sql.Identifier(name)
                )
            )
            superuser.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@contextmanager
def started(*words: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """A process of an installation, ended at the end."""
    env = {**os.environ, "DATABASE_URL": url, "ALLOWED_HOSTS": "127.0.0.1,localhost", "LOG_LEVEL": "WARNING"}
    env.pop("DATABASE_OWNER_URL", None)
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def refuses(*words: str, url: str) -> str:
    """What a process says that does not start."""
    with started(*words, url=url) as process:
        said, _ = process.communicate(timeout=30)
        assert process.returncode not in {0, None}
    return said


@pytest.mark.parametrize(
    "words", [(*WEB, "--port", "0"), (*WSGI, "--port", "0"), WORKER], ids=["web", "wsgi", "worker"]
)
def test_nothing_serves_as_a_superuser(words: tuple[str, ...]) -> None:  # K71
    said = refuses(*words, url=to_main(engines.current().superuser_url))
    assert "Nothing is served" in said
    assert "is a superuser" in said
    assert "manage.py doctor" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("BYPASSRLS", "has BYPASSRLS"),
        ("IN ROLE second_key_owner", "is a member of second_key_owner, which owns the database and owns "),
        (
            "NOINHERIT IN ROLE second_key_owner",
            "is a member of second_key_owner, which owns the database and owns ",
        ),
        ("IN ROLE pg_write_server_files", "reaches the server's own files"),
    ],
)
def test_no_way_around_the_fence_is_overlooked(options: str, says: str) -> None:  # K71
    with role(options) as url, connected_to(url, url):
        ways = checks.ways_around(connection)
        connections.close_all()
    assert len(ways) == 1
    assert says in ways[0]


def test_the_owner_is_refused_too() -> None:  # K71
    owner = to_main(engines.current().owner_url)
    with connected_to(owner, owner):
        (way,) = checks.ways_around(connection)
    assert way.startswith("second_key_owner owns the database and owns ")
    done = manage("create_tenant", "acme", DATABASE_URL=owner)
    assert done.returncode == 1
    assert "can bypass the tenant fence" in done.stderr


def test_a_superuser_in_disguise_is_refused() -> None:  # K71
    url = to_main(engines.current().superuser_url)
    with connected_to(url, url):
        with connection.cursor() as cursor:
            cursor.execute("SET ROLE second_key_app")
        (way,) = checks.ways_around(connection)
        connections.close_all()
    assert way.endswith("is a superuser")


def test_the_application_s_own_role_is_let_in() -> None:
    assert checks.ways_around(connection) == []
    checks.refuse_unfenced(connection=connection)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_the_owner_s_own_connection_is_left_alone() -> None:
    owner = connections["owner"]
    owner.ensure_connection()
    checks.refuse_unfenced(connection=owner)
    assert owner.connection is not None
    owner.close()


@contextmanager
def guarded() -> Iterator[None]:
    """This process as one that serves."""
    try:
        checks.guard_connections()
        yield
    finally:
        connection_created.disconnect(dispatch_uid="approvals.refuse_unfenced")


def test_a_database_that_comes_back_with_another_role_is_refused() -> None:  # K71
    url = to_main(engines.current().superuser_url)
    with connected_to(NOWHERE, NOWHERE), guarded():
        connections.close_all()
        with connected_to(url, url):
            for _ in range(2):  # the refused connection is not used the second time either
                with pytest.raises(UnfencedRoleError), connection.cursor():
                    pass
                assert connection.connection is None


def test_the_web_process_starts_without_a_database_and_says_so() -> None:
    port = free_port()
    with started(*WEB, "--port", str(port), url=NOWHERE) as process:

        def unhealthy() -> bool:
            assert process.poll() is None, process.communicate()[0]
            try:
                return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 503
            except httpx.TransportError:
                return False

        wait_until(unhealthy, seconds=40, what="an answer of 503")


def test_the_worker_starts_without_a_database() -> None:
    with started(*WORKER, "--loglevel", "INFO", url=NOWHERE) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if " ready." in line:
                break
        else:
            pytest.fail("the worker never was ready:\n" + "".join(lines))


def test_the_check_command_asks_the_same() -> None:  # K71
    call_command("check", databases=["default"], tags=[django_checks.Tags.database])
    url = to_main(engines.current().superuser_url)
    with connected_to(url, url):
        with pytest.raises(SystemCheckError, match=r"approvals\.E001.*is a superuser"):
            call_command("check", databases=["default"], tags=[django_checks.Tags.database])
        connections.close_all()
    assert checks.check_role(databases=["owner"]) == []
    with connected_to(NOWHERE, NOWHERE):
        (warning,) = checks.check_role(databases=["default"])
    assert warning.id == "approvals.W001"
