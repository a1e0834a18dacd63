"""The servers of a test run: a pytest plugin that starts them before Django's settings are read.

Loaded with `-p tests.engines` under `python -m pytest`. Each run gets a private PostgreSQL and Valkey with
empty data, removed at the end; it must never touch the servers or the data of `.local/`.
"""

import argparse
import atexit
import os
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from approvals.embedded import roles
from approvals.embedded.engines import Engines
from approvals.embedded.errors import EmbeddedError
from approvals.embedded.roles import PostgresUrls

# Who sets these and TEST_DATABASE=1 (CI, or this plugin for the processes it is a parent of) keeps them.
ADDRESSES = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL")
SUPERUSER_URL = "TEST_SUPERUSER_URL"

# For runs that read the settings but no data: nothing listens on port 1.
NOWHERE = {
    "DATABASE_URL": "postgresql://app@127.0.0.1:1/none",
    "DATABASE_OWNER_URL": "postgresql://owner@127.0.0.1:1/none",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SECRET_KEY": "only-for-collecting-tests-and-never-for-running-them",
    "SECOND_KEY_ENCRYPTION_KEYS": "A" * 43 + "=",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TestEngines:
    """Addresses of the run's servers. Databases made here belong to the owner role, as in production."""

    __test__ = False

    superuser_url: str = field(repr=False)
    owner_url: str = field(repr=False)
    app_url: str = field(repr=False)
    redis_url: str = field(repr=False)

    def create_database(self, name: str, template: str | None = None) -> PostgresUrls:
        """Addresses of a new database; `template` is one without connections. Raises psycopg.Error."""
        roles.create_database(self.superuser_url, name, template)
        urls = PostgresUrls(owner_url=self.owner_url, app_url=self.app_url, superuser_url=self.superuser_url)
        return urls.for_database(name)

    def drop_database(self, name: str) -> None:
        """Remove it, ending its connections; nothing happens if there is none."""
        roles.drop_database(self.superuser_url, name)


_started: Engines | None = None


def current() -> TestEngines:
    """The servers this run uses. RuntimeError where it was started without any (`--collect-only`)."""
    if SUPERUSER_URL not in os.environ:
        raise RuntimeError(f"this run has no servers of its own; {SUPERUSER_URL} is not set")
    return TestEngines(
        superuser_url=os.environ[SUPERUSER_URL],
        owner_url=os.environ["DATABASE_OWNER_URL"],
        app_url=os.environ["DATABASE_URL"],
        redis_url=os.environ["REDIS_URL"],
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    # A wrapper, because pytest-django reads the settings in a `tryfirst` implementation of this hook.
    _prepare(early_config.known_args_namespace)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    _stop()


def _prepare(options: argparse.Namespace) -> None:
    if os.environ.get("TEST_DATABASE") == "1" and all(os.environ.get(name) for name in ADDRESSES):
        return
    if options.help or options.version or getattr(options, "collectonly", False):
        os.environ.update(NOWHERE)
        return
    _start()


def _start() -> None:
    global _started
    engines = Engines(durable=False)
    # Also for ways out on which pytest does not unconfigure, such as a bad option in a conftest.
    atexit.register(_stop)
    try:
        addresses = engines.start()
    except EmbeddedError as error:
        raise pytest.UsageError(error.message) from error
    _started = engines
    os.environ.update(addresses.environment())
    os.environ[SUPERUSER_URL] = addresses.postgres.superuser_url
    os.environ["TEST_DATABASE"] = "1"


def _stop() -> None:
    global _started
    engines, _started = _started, None
    if engines is not None:
        engines.stop()
