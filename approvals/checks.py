"""Refusing to serve over a connection that the tenant fence does not hold (K71). Asked of PostgreSQL, never assumed.

A superuser, BYPASSRLS, an owner, or whoever may become one of them sees every tenant's rows. Nothing else is
checked here; `manage.py doctor` looks at everything.
"""

import logging
from collections.abc import Sequence
from typing import Any

from celery.signals import worker_init
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

logger = logging.getLogger(__name__)

# Predefined roles that reach the server's files or programs, and with them everything.
REACHES_THE_SERVER = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")

# The role as it signed in and as it acts now, and every role that either may become (SET ROLE).
ROLES = """
SELECT r.rolname,
       r.rolname IN (session_user, current_user),
       r.rolsuper,
       r.rolbypassrls,
       EXISTS (SELECT FROM pg_database d WHERE d.datdba = r.oid AND d.datname = current_database()),
       (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relowner = r.oid AND n.nspname = 'public' AND c.relkind IN ('r', 'p'))
  FROM pg_roles r
 WHERE r.rolname IN (session_user, current_user)
    OR pg_has_role(session_user, r.oid, 'MEMBER')
    OR pg_has_role(current_user, r.oid, 'MEMBER')
 ORDER BY 2 DESC, 1
"""


class UnfencedRoleError(ImproperlyConfigured):
    """The role of DATABASE_URL can bypass the tenant fence; the message names how, and what to do."""

    def __init__(self, ways: list[str]) -> None:
        super().__init__(
            f"Nothing is served, for the role of DATABASE_URL can bypass the tenant fence: {'; '.join(ways)}. "
            "Connect as the application's own role, which owns nothing and is a member of nothing; "
            "`manage.py doctor` says how to make it."
        )


def ways_around(database: BaseDatabaseWrapper) -> list[str]:
    """How the connection's role can see other tenants' rows, in words; empty where it cannot."""
    with database.cursor() as cursor:
        cursor.execute(ROLES)
        rows = cursor.fetchall()
    own = [row for row in rows if row[1]]
    if any(row[2] for row in own):  # a superuser is a member of everything, so the rest says nothing
        return [f"{row[0]} is a superuser" for row in own if row[2]]
    found = []
    for name, itself, superuser, bypasses, owns_database, tables in rows:
        powers = []
        if superuser:
            powers.append("is a superuser")
        if bypasses:
            powers.append("has BYPASSRLS")
        if owns_database:
            powers.append("owns the database")
        if tables:
            powers.append(f"owns {tables} of its tables")
        if name in REACHES_THE_SERVER:
            powers.append("reaches the server's own files or programs")
        if powers:
            words = " and ".join(powers)
            found.append(f"{name} {words}" if itself else f"{own[0][0]} is a member of {name}, which {words}")
    return found


def refuse_unfenced(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Close a new connection of an unfenced role before anybody uses it. Raises UnfencedRoleError."""
    if connection.alias != DEFAULT_DB_ALIAS:
        return
    try:
        ways = ways_around(connection)
        if ways:
            raise UnfencedRoleError(ways)
    except BaseException:
        connection.close()  # Django would otherwise go on with it at the next query
        raise


def guard_connections() -> None:
    """For a process that serves: check the role now, and again whenever a connection is made.

    A database that is merely down does not stop the start; the connection that is made once it is back is
    checked then. Raises UnfencedRoleError.
    """
    connection_created.connect(refuse_unfenced, dispatch_uid="approvals.refuse_unfenced")
    try:
        connection.ensure_connection()
    except OperationalError as error:
        logger.warning(
            "the database does not answer; its role is checked when it does", extra={"error": str(error)}
        )
    finally:
        connection.close()


def guard_worker(**kwargs: Any) -> None:
    """`guard_connections` for a Celery worker: only an exit gets through Celery's signals."""
    try:
        guard_connections()
    except UnfencedRoleError as error:
        raise SystemExit(str(error)) from error


def check_role(*, databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """`manage.py check --database default`: the same question."""
    if DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    try:
        ways = ways_around(connection)
    except OperationalError as error:
        return [checks.Warning(f"The database does not answer: {error}", id="approvals.W001")]
    return [
        checks.Error(
            f"The role of DATABASE_URL can bypass the tenant fence: {way}.",
            hint="Connect as the application's own role; `manage.py doctor` says how to make it.",
            id="approvals.E001",
        )
        for way in ways
    ]


def register() -> None:
    """Called once, when the application is ready."""
    checks.register(check_role, checks.Tags.database)
    worker_init.connect(guard_worker, dispatch_uid="approvals.guard_worker")
