"""The tenant fence and the append-only tables, as SQL for migrations and grants. Nothing here runs in a request.

Two roles: the owner migrates and owns every table; the application's role owns nothing and sees only rows of
the tenant named by `app.tenant` in its transaction (row-level security). A model declares what it needs:
`append_only = True` (no UPDATE, no DELETE, no TRUNCATE, for anybody), `keep_rows = True` (no DELETE), or
`outside_fence = "why"` for the few tables that hold ids only.
"""

from collections.abc import Iterable

from django.apps import apps
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import RunSQL
from psycopg import sql

TENANT_MATCHES = "tenant_id = nullif(current_setting('app.tenant', true), '')::uuid"


def fenced(table: str) -> RunSQL:
    """Row-level security on `table` by its `tenant_id`; without a tenant set, no row is seen or written."""
    return RunSQL(
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY tenant_fence ON {table} USING ({TENANT_MATCHES}) WITH CHECK ({TENANT_MATCHES});",
        f"DROP POLICY tenant_fence ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;",
    )


FUNCTIONS = RunSQL(
    """
    CREATE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
    CREATE FUNCTION ledger_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
    END $$;
    CREATE FUNCTION ledger_check_transition() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        old_state text := to_jsonb(OLD) ->> TG_ARGV[0];
        new_state text := to_jsonb(NEW) ->> TG_ARGV[0];
    BEGIN
        IF old_state IS DISTINCT FROM new_state
           AND NOT (TG_ARGV[1]::jsonb @> to_jsonb(old_state || '>' || new_state)) THEN
            RAISE EXCEPTION '%: no transition from % to %', TG_TABLE_NAME, old_state, new_state
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END $$;
    """,
    """
    DROP FUNCTION ledger_check_transition(); DROP FUNCTION ledger_append_only(); DROP FUNCTION ledger_now();
    """,
)


def append_only(table: str) -> RunSQL:
    """Refuse UPDATE, DELETE and TRUNCATE on `table`, the owner's included."""
    return RunSQL(
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION ledger_append_only();"
        f"CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION ledger_append_only();",
        f"DROP TRIGGER append_only ON {table}; DROP TRIGGER append_only_truncate ON {table};",
    )


def transitions(table: str, column: str, pairs: Iterable[tuple[str, str]]) -> RunSQL:
    """Refuse, in the database, any change of `column` that is not one of `pairs`."""
    allowed = "[" + ",".join(f'"{old}>{new}"' for old, new in pairs) + "]"
    return RunSQL(
        f"CREATE TRIGGER check_transition BEFORE UPDATE OF {column} ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION ledger_check_transition('{column}', '{allowed}');",
        f"DROP TRIGGER check_transition ON {table};",
    )


def frozen(table: str, columns: Iterable[str]) -> RunSQL:
    """Refuse any UPDATE that names one of `columns`: what was approved or pinned never changes (R-B1, R-C1)."""
    return RunSQL(
        f"CREATE TRIGGER frozen_columns BEFORE UPDATE OF {', '.join(columns)} ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION ledger_append_only();",
        f"DROP TRIGGER frozen_columns ON {table};",
    )


def privileges(model: type[models.Model]) -> tuple[str, ...]:
    """What the application's role may do with the model's table."""
    if getattr(model, "append_only", False):
        return ("SELECT", "INSERT")
    if getattr(model, "keep_rows", False):
        return ("SELECT", "INSERT", "UPDATE")
    return ("SELECT", "INSERT", "UPDATE", "DELETE")


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Give `role` exactly what the models declare, and nothing else. Idempotent; the owner's connection."""
    wanted: dict[str, tuple[str, ...]] = {"django_migrations": ("SELECT",)}
    for model in apps.get_models(include_auto_created=True):
        meta = model._meta  # noqa: SLF001 - Django's documented way to a model's table
        if meta.managed and not meta.proxy:
            wanted[meta.db_table] = privileges(model)
    user = sql.Identifier(role)
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        execute = cursor.connection.execute
        execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(user))
        for table, verbs in sorted(wanted.items()):
            if table in tables:
                name = sql.Identifier(table)
                execute(sql.SQL("REVOKE ALL ON {} FROM {}").format(name, user))
                rights = sql.SQL(", ").join(map(sql.SQL, verbs))
                execute(sql.SQL("GRANT {} ON {} TO {}").format(rights, name, user))
