"""What every test stands on: a migrated database of this run, the application's own role, the database's clock.

Tests really commit. The application's role may not TRUNCATE, so nothing is flushed: each test makes a fresh
tenant and sees nothing of the others through the fence.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, connections
from pytest_django import DjangoDbBlocker

from tests import engines

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")  # processes of one run share the servers, not the data
TEMPLATE = f"second_key_template_{WORKER}"
MAIN = f"second_key_tests_{WORKER}"


@pytest.fixture(scope="session")
def template_database(django_db_blocker: DjangoDbBlocker) -> str:
    """A migrated, empty database that others are copied from; nobody stays connected to it."""
    engine = engines.current()
    engine.drop_database(TEMPLATE)
    engine.create_database(TEMPLATE)
    with django_db_blocker.unblock():
        point_at(TEMPLATE)
        call_command("migrate", verbosity=0)
        connections.close_all()
    return TEMPLATE


@pytest.fixture(scope="session")
def django_db_setup(template_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """The database of the tests in this process, a copy of the template."""
    engine = engines.current()
    engine.drop_database(MAIN)
    engine.create_database(MAIN, TEMPLATE)
    with django_db_blocker.unblock():
        point_at(MAIN)
        yield
        connections.close_all()


def point_at(name: str) -> None:
    """Connect this process to another database of the run."""
    connections.close_all()
    for alias in ("default", "owner"):
        settings.DATABASES[alias]["NAME"] = name
        connections[alias].settings_dict["NAME"] = name


@pytest.fixture
def db(django_db_setup: None) -> Iterator[None]:
    """Access to the database, with real commits; replaces pytest-django's transaction around each test."""
    yield
    connection.close()


class Clock:
    """Redefines `ledger_now()` over the owner's connection, as an operator of time."""

    def __init__(self, url: str) -> None:
        self.url = url

    def _define(self, body: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as owner:
            owner.execute(
                "CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" AS $$ SELECT {body} $$"
            )

    def at(self, moment: datetime) -> None:
        """The clock stands at `moment`."""
        self._define(f"timestamptz '{moment.isoformat()}'")

    def ahead(self, seconds: float) -> None:
        """The clock runs, `seconds` ahead of the true time."""
        self._define(f"clock_timestamp() + interval '{seconds} seconds'")

    def true(self) -> None:
        """The clock is right again."""
        self._define("clock_timestamp()")


@contextmanager
def clock_of(url: str) -> Iterator[Clock]:
    """A clock that is put right at the end."""
    clock = Clock(url)
    try:
        yield clock
    finally:
        clock.true()


@pytest.fixture
def clock(db: None) -> Iterator[Clock]:
    """The clock of this process's database."""
    with clock_of(engines.current().owner_url.rsplit("/", 1)[0] + "/" + MAIN) as made:
        yield made


@pytest.fixture
def owner(db: None) -> Iterator[psycopg.Connection]:
    """The owner's own connection to this process's database; nothing is committed unless a test does it."""
    with psycopg.connect(engines.current().owner_url.rsplit("/", 1)[0] + "/" + MAIN) as made:
        yield made
        made.rollback()
