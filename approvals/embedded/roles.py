"""Roles and databases of the private PostgreSQL, made over the superuser's connection.

Two roles, as in production: the owner migrates, the application connects as a role that owns nothing and
cannot bypass row-level security. Everything can be repeated; no table is known here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

OWNER = "second_key_owner"
APP = "second_key_app"
DATABASE = "second_key"

LIMITS = sql.SQL("LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION")

type Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresUrls:
    """Addresses of one database, as owner, as application and as superuser."""

    owner_url: str = field(repr=False)
    app_url: str = field(repr=False)
    superuser_url: str = field(repr=False)

    def for_database(self, name: str) -> "PostgresUrls":
        return PostgresUrls(
            owner_url=with_database(self.owner_url, name),
            app_url=with_database(self.app_url, name),
            superuser_url=with_database(self.superuser_url, name),
        )


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def connect(url: str, *, seconds: int = 5) -> Iterator[Connection]:
    """An autocommit connection that no PG… variable of the surrounding shell can lead astray."""
    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=seconds, sslmode="disable", gssencmode="disable"
    )
    with connection:
        yield connection


def prepare(superuser_url: str, *, owner_password: str, app_password: str) -> None:
    """Both roles with these passwords, and the database. Safe to repeat at every start."""
    with connect(superuser_url) as connection:
        _role(connection, OWNER, owner_password)
        _role(connection, APP, app_password)
        exists = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
    if exists is None:
        create_database(superuser_url, DATABASE)
    else:
        _grant(superuser_url, DATABASE)


def create_database(superuser_url: str, name: str, template: str | None = None) -> None:
    """A database of the owner in which the application role may connect and see `public`, no more.

    `template` must have no connections. Raises psycopg.Error, for example if the name is taken.
    """
    source = sql.Identifier(template or "template0")
    statement = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}")
    with connect(superuser_url) as connection:
        connection.execute(statement.format(sql.Identifier(name), sql.Identifier(OWNER), source))
    _grant(superuser_url, name)


def drop_database(superuser_url: str, name: str) -> None:
    """Remove it, ending whoever is still connected; nothing happens if there is none."""
    with connect(superuser_url) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _role(connection: Connection, name: str, password: str) -> None:
    # Hashed on this side, so that neither the statement nor a log of it holds the password.
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    exists = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone()
    verb = sql.SQL("CREATE" if exists is None else "ALTER")
    statement = sql.SQL("{} ROLE {} WITH {} PASSWORD {}")
    connection.execute(statement.format(verb, sql.Identifier(name), LIMITS, sql.Literal(verifier)))


def _grant(superuser_url: str, name: str) -> None:
    owner, app, database = sql.Identifier(OWNER), sql.Identifier(APP), sql.Identifier(name)
    with connect(with_database(superuser_url, name)) as connection, connection.transaction():
        for statement in (
            sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database),
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, app),
            sql.SQL("ALTER SCHEMA public OWNER TO {}").format(owner),
            sql.SQL("REVOKE ALL ON SCHEMA public FROM PUBLIC"),
            sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(app),
        ):
            connection.execute(statement)
