"""PostgreSQL as an installation has to find it: reachable, new enough, migrated, and fenced in.

Everything is asked over the application's own connection, and nothing is changed. Tenants' rows are another
room's (`work`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

from approvals.checks import ways_around
from approvals.doctor.findings import Finding, fail, ok, some, warn
from approvals.health import migrations_on_disk
from approvals.variables import NEEDED, ROLES_SQL
from ledger import fence

OLDEST_VERSION = 15
MOST_SKEW = 2.0  # seconds
FENCE = "(tenant_id = (NULLIF(current_setting('app.tenant'::text, true), ''::text))::uuid)"
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
MIGRATE = (
    "Run `manage.py migrate` with DATABASE_OWNER_URL set; it also gives the application's role its rights."
)
ROLES_ARE_MADE_SO = f"How the two roles and the database are made:\n{ROLES_SQL}"


def reachable() -> Finding:
    """PostgreSQL answers, and is new enough."""
    try:
        connection.ensure_connection()
        version = connection.cursor().connection.info.server_version
    except DatabaseError as error:
        connection.close()
        return fail(
            "postgresql", f"PostgreSQL does not answer: {' '.join(str(error).split())}", how_to_reach_it()
        )
    said = f"PostgreSQL {version // 10_000}.{version % 10_000}, database {connection.settings_dict['NAME']}"
    if version // 10_000 < OLDEST_VERSION:
        return fail("postgresql", said, f"Use PostgreSQL {OLDEST_VERSION} or newer.")
    return ok("postgresql", said)


def how_to_reach_it() -> str:
    """Which variables are needed, and the SQL that makes what they name."""
    if settings.EMBEDDED and settings.CONFIGURED:
        return "Start `manage.py demo`: the servers that it keeps in .local are not running."
    needed = "\n".join(f"{variable.name}: {variable.what}" for variable in NEEDED)
    return (
        "Set these variables for every process, and DATABASE_OWNER_URL for `manage.py migrate`:\n"
        f"{needed}\n{ROLES_ARE_MADE_SO}"
    )


def role() -> Iterator[Finding]:
    """The application's role owns nothing, may create nothing, and is a member of nothing (K71)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_user, r.rolcreaterole, r.rolcreatedb, has_schema_privilege('public', 'CREATE'),"
            " ARRAY(SELECT m.rolname::text FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.roleid"
            "        WHERE a.member = r.oid ORDER BY 1) FROM pg_roles r WHERE r.rolname = current_user"
        )
        name, makes_roles, makes_databases, creates, groups = cursor.fetchone() or (
            "",
            False,
            False,
            False,
            [],
        )
    ways = ways_around(connection)
    owner = settings.DATABASES.get("owner", {}).get("USER")
    if owner == name:
        ways.append("DATABASE_OWNER_URL names the same role")
    if ways:
        yield fail("role", f"The tenant fence does not hold: {'; '.join(ways)}.", ROLES_ARE_MADE_SO)
    else:
        yield ok("role", f"{name} is no superuser, has no BYPASSRLS and owns nothing")
    too_much = []
    if creates:
        too_much.append(("may create in the schema public", "REVOKE CREATE ON SCHEMA public FROM PUBLIC, {}"))
    if makes_roles:
        too_much.append(("may create roles", "ALTER ROLE {} NOCREATEROLE"))
    if makes_databases:
        too_much.append(("may create databases", "ALTER ROLE {} NOCREATEDB"))
    too_much += [(f"is a member of {group}", f"REVOKE {group} FROM {{}}") for group in groups]
    if too_much:
        said = f"{name} {' and '.join(fault for fault, _ in too_much)}."
        yield fail("role's reach", said, "; ".join(cure.format(name) for _, cure in too_much) + ";")
    else:
        yield ok("role's reach", f"{name} creates nothing and is a member of no other role")


def migrations() -> Finding:
    """The tables are those of this program."""
    try:
        applied = MigrationRecorder(connection).applied_migrations().keys()
    except DatabaseError as error:  # the table is there and may not be read
        return fail("migrations", " ".join(str(error).split()), MIGRATE)
    here = migrations_on_disk()
    missing = sorted(".".join(one) for one in here - applied)
    if missing:
        return fail("migrations", f"{len(missing)} not applied: {some(missing)}", MIGRATE)
    labels = {label for label, _ in here}
    newer = sorted(".".join(one) for one in applied - here if one[0] in labels)
    if newer:
        mend = "Run the release that made them; this one is older than its database."
        return fail("migrations", f"The database is ahead of this program: {some(newer)}", mend)
    return ok("migrations", f"all {len(here)} applied")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of ours, as its model declares it."""

    name: str
    privileges: tuple[str, ...]
    fenced: bool
    append_only: bool


def declared() -> list[Table]:
    """Every table that the models make; the few with a tenant and outside the fence say why in their model."""
    tables = []
    for model in apps.get_models(include_auto_created=True):
        meta = model._meta  # noqa: SLF001 - Django's documented way to a model's table
        if meta.managed and not meta.proxy:
            has_tenant = any(field.column == "tenant_id" for field in meta.concrete_fields)
            tables.append(
                Table(
                    name=meta.db_table,
                    privileges=fence.privileges(model),
                    fenced=has_tenant and not getattr(model, "outside_fence", ""),
                    append_only=getattr(model, "append_only", False),
                )
            )
    return tables


def row_security() -> Finding:
    """Every table with tenants' rows has the one policy, and it is the right one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname, c.relrowsecurity, coalesce(array_agg(p.polname::text || '|' || p.polcmd::text || '|'"
            " || p.polpermissive || '|' || coalesce(pg_get_expr(p.polqual, p.polrelid), '') || '|'"
            " || coalesce(pg_get_expr(p.polwithcheck, p.polrelid), '')) FILTER (WHERE p.oid IS NOT NULL), '{}')"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'public'"
            " LEFT JOIN pg_policy p ON p.polrelid = c.oid WHERE c.relkind IN ('r', 'p') GROUP BY c.oid, 1, 2"
        )
        found = {row[0]: (row[1], row[2]) for row in cursor.fetchall()}
    right = (True, [f"tenant_fence|*|true|{FENCE}|{FENCE}"])
    tables = [table.name for table in declared() if table.fenced]
    wrong = sorted(table for table in tables if found.get(table) != right)
    if wrong:
        mend = f"{MIGRATE} A table that stays open was changed by hand: compare it with ledger.fence.fenced."
        return fail("row-level security", f"No fence, or another one, on {some(wrong)}", mend)
    return ok("row-level security", f"{len(tables)} tables are fenced by tenant")


def privileges() -> Finding:
    """The role may do with each table what its model declares, and nothing more."""
    wanted: dict[str, tuple[str, ...]] = {"django_migrations": ("SELECT",)}
    wanted |= {table.name: table.privileges for table in declared()}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.name, v.verb, has_table_privilege(c.oid, v.verb) OR (v.verb IN"
            " ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(c.oid, v.verb))"
            " FROM unnest(%s::text[]) AS t(name)"
            " JOIN pg_class c ON c.oid = to_regclass('public.' || quote_ident(t.name))"
            " CROSS JOIN unnest(%s::text[]) AS v(verb)",
            [list(wanted), list(VERBS)],
        )
        rows = cursor.fetchall()
    wrong = sorted(
        f"{table} {'may' if may else 'may not'} {verb}"
        for table, verb, may in rows
        if may != (verb in wanted[table])
    )
    if wrong:
        return fail("privileges", f"Other than declared: {some(wrong)}", MIGRATE)
    return ok("privileges", f"{len(wanted)} tables, exactly as declared")


def append_only() -> Finding:
    """The triggers that refuse to change what must not change are there and on."""
    tables = [table.name for table in declared() if table.append_only]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname || '.' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE t.tgenabled IN ('O', 'A') AND NOT t.tgisinternal"
        )
        there = {row[0] for row in cursor.fetchall()}
    wanted = {f"{table}.{name}" for table in tables for name in ("append_only", "append_only_truncate")}
    wanted |= {f"{table}.check_transition" for table in ("approvals_action", "ledger_operation")}
    missing = sorted(wanted - there)
    if missing:
        mend = "ALTER TABLE … ENABLE TRIGGER …, as the owner; and find out who turned it off."
        return fail("append-only tables", f"Missing or off: {some(missing)}", mend)
    return ok("append-only tables", f"{len(tables)} tables refuse every change")


def clocks() -> Iterator[Finding]:
    """The database's clock is the true one, and this host is not far from it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT prosrc FROM pg_proc WHERE proname = 'ledger_now'")
        source = cursor.fetchone()
        before = time.time()
        cursor.execute("SELECT clock_timestamp(), current_setting('TimeZone')")
        moment, zone = cursor.fetchone() or (datetime.now(UTC), "")
        after = time.time()
    if source is None or source[0].strip() != "SELECT clock_timestamp()":
        mend = "As the owner: CREATE OR REPLACE FUNCTION ledger_now() … AS 'SELECT clock_timestamp()'."
        yield fail("clock", "ledger_now() is not the database's own clock.", mend)
    else:
        yield ok("clock", "ledger_now() is the database's own clock")
    if zone != "UTC":
        yield fail(
            "session time zone", f"The session's time zone is {zone}.", "Take timezone out of DATABASE_URL."
        )
    yield skew(before, moment.timestamp(), after)


def skew(before: float, theirs: float, after: float) -> Finding:
    """How far this host's clock is from the database's; Unix seconds, `theirs` read between the other two."""
    off = max(before - theirs, theirs - after, 0.0)
    if off > MOST_SKEW:
        mend = "Let both hosts follow a time server. Nothing is decided by this host's clock, but its logs mislead."
        return warn("clock skew", f"This host's clock is {off:.1f} s off the database's.", mend)
    return ok("clock skew", f"less than {MOST_SKEW:g} s off the database's clock, which alone decides")
