"""The two roles, the tenant fence and the append-only tables, seen from the application's own connection."""

from uuid import UUID

import psycopg
import pytest
from django.apps import apps
from django.db import IntegrityError, InternalError, ProgrammingError, connection, transaction

from approvals.models import Tenant
from approvals.models.actions import action_transition_pairs
from ledger import clock, journal
from ledger.ids import new_id
from ledger.models import ChainHead, JournalEntry, Outbox
from ledger.states import transition_pairs
from ledger.transactions import tenant_reads, tenant_transaction

pytestmark = pytest.mark.usefixtures("db")


def new_tenant() -> UUID:
    tenant_id = new_id()
    with tenant_transaction(tenant_id) as tx:
        Tenant.objects.create(id=tenant_id, created_at=tx.now())
        journal.open_chain(tenant_id)
        tx.journal("tenant.created", actor=journal.SYSTEM)
    return tenant_id


def test_the_application_role_cannot_bypass_the_fence() -> None:  # K71
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, False)
        cursor.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tableowner = current_user"
        )
        assert cursor.fetchone() == (0,)


def test_every_table_with_a_tenant_is_fenced_or_says_why_not() -> None:
    fenced: set[str] = set()
    outside: set[str] = set()
    for model in apps.get_models():
        if any(field.column == "tenant_id" for field in model._meta.concrete_fields):
            (outside if getattr(model, "outside_fence", "") else fenced).add(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tablename FROM pg_policies WHERE schemaname = 'public' AND policyname = 'tenant_fence'"
        )
        policies = {row[0] for row in cursor.fetchall()}
        cursor.execute("SELECT relname FROM pg_class WHERE relrowsecurity AND relkind = 'r'")
        enabled = {row[0] for row in cursor.fetchall()}
    assert policies == fenced == enabled
    assert outside == {"ledger_outbox", "approvals_membership", "approvals_agenttoken"}


def test_without_a_tenant_no_row_is_seen_or_written() -> None:  # K71
    tenant_id = new_tenant()
    assert not JournalEntry.objects.exists()
    assert not ChainHead.objects.filter(tenant_id=tenant_id).exists()
    with pytest.raises(ProgrammingError, match="row-level security"):
        journal.open_chain(new_id())


def test_another_tenant_sees_nothing_and_cannot_write_here() -> None:  # K43
    mine, theirs = new_tenant(), new_tenant()
    with tenant_reads(theirs):
        assert not JournalEntry.objects.filter(tenant_id=mine).exists()
        assert ChainHead.objects.count() == 1
    with pytest.raises(ProgrammingError, match="row-level security"), tenant_transaction(theirs):
        ChainHead.objects.create(tenant_id=new_id(), seq=0, hash="0" * 64)


def test_the_tenant_does_not_outlive_its_transaction() -> None:
    tenant_id = new_tenant()
    with tenant_reads(tenant_id):
        assert ChainHead.objects.exists()
    assert not ChainHead.objects.exists()


def test_append_only_rows_cannot_be_changed_by_anybody() -> None:  # R-F1
    tenant_id = new_tenant()
    with pytest.raises(ProgrammingError, match="permission denied"), tenant_transaction(tenant_id):
        JournalEntry.objects.update(event="other")
    with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_journalentry")
    with pytest.raises(ProgrammingError, match="permission denied"), connection.cursor() as cursor:
        cursor.execute("TRUNCATE ledger_journalentry CASCADE")
    tables = [model._meta.db_table for model in apps.get_models() if getattr(model, "append_only", False)]
    assert {"ledger_journalentry", "approvals_vote", "approvals_decision"} <= set(tables)


def test_the_owner_cannot_rewrite_the_journal_either(owner: psycopg.Connection) -> None:
    new_tenant()
    for statement in (
        b"UPDATE ledger_journalentry SET event = 'other'",
        b"DELETE FROM ledger_journalentry",
        b"TRUNCATE ledger_journalentry CASCADE",
    ):
        with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
            owner.execute(statement)
        owner.rollback()


def test_the_database_knows_the_same_transitions_as_the_code(owner: psycopg.Connection) -> None:
    for table, pairs in (
        ("ledger_operation", transition_pairs()),
        ("approvals_action", action_transition_pairs()),
    ):
        row = owner.execute(
            "SELECT tgargs FROM pg_trigger WHERE tgname = 'check_transition' AND tgrelid = %s::regclass",
            [table],
        ).fetchone()
        assert row is not None
        allowed = row[0].split(b"\x00")[1].decode()
        assert allowed == "[" + ",".join(f'"{old}>{new}"' for old, new in pairs) + "]"


def test_the_journal_verifies_and_shows_a_change(owner: psycopg.Connection) -> None:
    tenant_id = new_tenant()
    with tenant_transaction(tenant_id) as tx:
        tx.journal("test.one", actor=journal.SYSTEM, note="first")
        tx.journal("test.two", actor=journal.SYSTEM, note="second")
    with tenant_reads(tenant_id):
        assert journal.verify(tenant_id) == journal.ChainCheck(entries=3)
    with owner.transaction():
        owner.execute("ALTER TABLE ledger_journalentry DISABLE TRIGGER append_only")
        owner.execute(
            "UPDATE ledger_journalentry SET event = 'forged' WHERE tenant_id = %s AND seq = 2", [tenant_id]
        )
        owner.execute("ALTER TABLE ledger_journalentry ENABLE TRIGGER append_only")
    with tenant_reads(tenant_id):
        assert journal.verify(tenant_id).fault == "entry 2 was changed"


def test_a_transaction_that_fails_leaves_no_entry_and_no_step() -> None:  # R-C6
    tenant_id, subject = new_tenant(), new_id()

    def fail_late() -> None:
        with tenant_transaction(tenant_id) as tx:
            tx.journal("test.lost", actor=journal.SYSTEM)
            tx.schedule("execute", subject, due_at=tx.now())
            ChainHead.objects.create(tenant_id=tenant_id, seq=0, hash="0" * 64)

    with pytest.raises(IntegrityError):
        fail_late()
    assert not Outbox.objects.filter(subject_id=subject).exists()
    with tenant_reads(tenant_id):
        assert not JournalEntry.objects.filter(event="test.lost").exists()


def test_transactions_do_not_nest() -> None:
    tenant_id = new_tenant()
    with (
        tenant_transaction(tenant_id),
        pytest.raises(Exception, match="inside another one"),
        tenant_reads(tenant_id),
    ):
        pass
    with (
        transaction.atomic(),
        pytest.raises(Exception, match="inside another one"),
        tenant_transaction(tenant_id),
    ):
        pass


def test_a_forbidden_transition_is_refused_by_the_database(owner: psycopg.Connection) -> None:
    assert clock.now() is not None
    with pytest.raises((InternalError, psycopg.errors.RestrictViolation)):
        owner.execute(
            """
            CREATE TEMPORARY TABLE probe (state text);
            INSERT INTO probe VALUES ('succeeded');
            CREATE TRIGGER check_transition BEFORE UPDATE OF state ON probe FOR EACH ROW
                EXECUTE FUNCTION ledger_check_transition('state', '["prepared>dispatched"]');
            UPDATE probe SET state = 'prepared';
            """
        )
