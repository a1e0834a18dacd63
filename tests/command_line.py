"""Running management commands in tests: in this process for what they do, as another for how they end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from approvals.embedded.roles import PostgresUrls
from tests import conftest, engines
from tests.live import connected_to

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a command wrote."""

    out: str
    err: str


def run(*words: str) -> Said:
    """A command in this process. Raises CommandError."""
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return Said(out=out.getvalue(), err=err.getvalue())


def refused(*words: str) -> str:
    """The one sentence that a command ends with."""
    with pytest.raises(CommandError) as raised:
        run(*words)
    return str(raised.value)


def address() -> str:
    """This process's database, as the application."""
    return engines.current().app_url.rsplit("/", 1)[0] + "/" + conftest.MAIN


def manage(*words: str, standard_input: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """`python manage.py …` as an installation runs it: configured by the environment, as the application's role."""
    env = {**os.environ, "DATABASE_URL": address()}
    for name in ("DATABASE_OWNER_URL", "DJANGO_SETTINGS_MODULE"):
        env.pop(name, None)
    env |= environment
    return subprocess.run(
        [sys.executable, "-W", "error", "manage.py", *words],
        cwd=ROOT,
        env=env,
        input=standard_input,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def own_database(name: str) -> Iterator[PostgresUrls]:
    """A fresh copy of the migrated template, to which this process is connected meanwhile."""
    engine = engines.current()
    engine.drop_database(name)
    urls = engine.create_database(name, conftest.TEMPLATE)
    try:
        with connected_to(urls.app_url, urls.owner_url):
            yield urls
    finally:
        engine.drop_database(name)
