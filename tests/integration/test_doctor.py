"""`manage.py doctor` on an installation that is well, and on the same one after each thing that can be broken."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from cryptography.fernet import Fernet
from django.db import connection
from pytest_django.fixtures import Settings

from approvals import policies, tenants
from approvals.doctor import work
from approvals.doctor.examination import examine
from approvals.doctor.findings import Finding, Level
from approvals.embedded.roles import PostgresUrls
from approvals.models import Action
from approvals.variables import NEEDED, ROLES_SQL
from ledger import accounts
from ledger.ids import new_id
from ledger.journal import SYSTEM
from ledger.models import Operation, Outbox, ProviderAccount
from ledger.operations import open_operation
from ledger.states import OperationState
from ledger.transactions import tenant_reads, tenant_transaction
from tests import engines
from tests.command_line import manage, own_database, refused, run
from tests.factories import World, world
from tests.ledger_steps import refund

pytestmark = pytest.mark.usefixtures("db")

DATABASE = "second_key_doctor"


@pytest.fixture
def urls() -> Iterator[PostgresUrls]:
    """An installation of this test's own, freshly migrated."""
    with own_database(DATABASE) as made:
        yield made


@pytest.fixture
def here(urls: PostgresUrls) -> World:
    """Its first tenant, ready to work."""
    return world()


@pytest.fixture
def as_owner(urls: PostgresUrls) -> Iterator[Callable[[str], None]]:
    """Run a statement as the role that owns the tables."""
    with psycopg.connect(urls.owner_url, autocommit=True) as owner:

        def execute(statement: str) -> None:
            owner.execute(statement.encode())

        yield execute


def found(*, quick: bool = False) -> dict[str, Finding]:
    """Every finding by its check."""
    return {finding.check: finding for finding in examine(quick=quick)}


def wrong(findings: dict[str, Finding]) -> dict[str, str]:
    """What is not well, with its level."""
    return {name: str(finding.level) for name, finding in findings.items() if finding.level is not Level.OK}


def test_an_installation_that_is_well(here: World) -> None:
    findings = found()
    assert wrong(findings) == {}
    assert set(findings) >= {
        "python",
        "address",
        "encryption keys",
        "broker",
        "broker memory",
        "postgresql",
        "role",
        "role's reach",
        "migrations",
        "row-level security",
        "privileges",
        "append-only tables",
        "clock",
        "clock skew",
        "time zone",
        "outbox",
        "next steps",
        "provider secrets",
        "journal",
        "tenants",
    }
    assert "journal" not in found(quick=True)


def test_the_command_tells_people_and_programs(here: World, urls: PostgresUrls) -> None:
    said = run("doctor")
    assert "ok    postgresql: PostgreSQL " in said.out
    body = json.loads(run("doctor", "--json", "--quick").out)
    assert body["ok"] is True
    assert {finding["level"] for finding in body["findings"]} == {"ok"}
    done = manage("doctor", DATABASE_URL=urls.app_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\nok") > 15


def test_a_new_installation_is_told_what_to_do_next(urls: PostgresUrls) -> None:
    findings = found()
    assert wrong(findings) == {"tenants": "warn"}
    assert "create_tenant" in findings["tenants"].mend
    tenant_id = tenants.create_tenant(slug="acme", name="Acme")
    findings = found()
    assert wrong(findings) == {"tenants": "warn"}
    for lack in ("acme has no policy", "acme has no active reviewer", "acme has no provider account"):
        assert lack in findings["tenants"].said
    policies.publish(tenant_id, kind="refund", document={"rules": []}, by="test")
    assert "no policy" not in found()["tenants"].said


def test_without_a_database_it_says_what_is_needed() -> None:
    done = manage("doctor", DATABASE_URL="postgresql://second_key_app@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "FAIL  postgresql: PostgreSQL does not answer" in done.stdout
    for variable in NEEDED:
        assert variable.name in done.stdout
    assert "DATABASE_OWNER_URL" in done.stdout
    for line in ROLES_SQL.splitlines():
        assert line in done.stdout
    assert "checks failed" in done.stderr
    assert "Traceback" not in done.stderr
    body = json.loads(manage("doctor", "--json", DATABASE_URL="postgresql://a@127.0.0.1:1/none").stdout)
    assert body["ok"] is False


def test_a_database_without_tables_needs_migrating(urls: PostgresUrls) -> None:
    engine = engines.current()
    empty = engine.create_database("second_key_empty")
    try:
        done = manage("doctor", DATABASE_URL=empty.app_url)
        assert done.returncode == 1
        assert "FAIL  migrations: " in done.stdout
        assert "manage.py migrate" in done.stdout
        assert "ok    role: " in done.stdout
    finally:
        engine.drop_database("second_key_empty")


def test_a_release_and_its_database_belong_together(here: World, as_owner: Callable[[str], None]) -> None:
    as_owner("INSERT INTO django_migrations (app, name, applied) VALUES ('ledger', '9999_later', now())")
    findings = found()
    assert findings["migrations"].level is Level.FAIL
    assert "ledger.9999_later" in findings["migrations"].said
    assert "journal" not in findings  # nothing is said of tables that this release does not know
    as_owner("DELETE FROM django_migrations WHERE app = 'ledger'")
    assert "not applied: ledger.0001_initial" in found()["migrations"].said


def test_a_superuser_is_found_out(here: World, urls: PostgresUrls) -> None:  # K71
    done = manage("doctor", "--json", "--quick", DATABASE_URL=urls.superuser_url)
    assert done.returncode == 1
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["role"]["level"] == "fail"
    assert "is a superuser" in findings["role"]["said"]
    assert "CREATE ROLE second_key_app" in findings["role"]["mend"]


def test_the_owner_is_found_out(here: World, urls: PostgresUrls) -> None:  # K71
    done = manage("doctor", "--quick", DATABASE_URL=urls.owner_url, DATABASE_OWNER_URL=urls.owner_url)
    assert done.returncode == 1
    assert "second_key_owner owns the database and owns " in done.stdout
    assert "DATABASE_OWNER_URL names the same role" in done.stdout
    assert "may create in the schema public" in done.stdout


@pytest.mark.parametrize(
    ("change", "check", "says"),
    [
        ("ALTER TABLE approvals_action DISABLE ROW LEVEL SECURITY", "row-level security", "approvals_action"),
        ("DROP POLICY tenant_fence ON approvals_vote", "row-level security", "approvals_vote"),
        ("CREATE POLICY wide ON ledger_receipt USING (true)", "row-level security", "ledger_receipt"),
        ("ALTER POLICY tenant_fence ON ledger_receipt USING (true)", "row-level security", "ledger_receipt"),
        (
            "GRANT DELETE ON ledger_journalentry TO second_key_app",
            "privileges",
            "ledger_journalentry may DELETE",
        ),
        ("GRANT TRUNCATE ON approvals_decision TO PUBLIC", "privileges", "approvals_decision may TRUNCATE"),
        (
            "GRANT UPDATE (reason) ON approvals_vote TO second_key_app",
            "privileges",
            "approvals_vote may UPDATE",
        ),
        ("REVOKE INSERT ON ledger_outbox FROM second_key_app", "privileges", "ledger_outbox may not INSERT"),
        (
            "GRANT CREATE ON SCHEMA public TO second_key_app",
            "role's reach",
            "may create in the schema public",
        ),
        (
            "ALTER TABLE ledger_journalentry DISABLE TRIGGER append_only",
            "append-only tables",
            "ledger_journalentry",
        ),
        ("DROP TRIGGER check_transition ON ledger_operation", "append-only tables", "ledger_operation"),
        (
            "CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT now()'",
            "clock",
            "not the database's own clock",
        ),
    ],
)
def test_every_hole_in_the_fence_is_found(
    here: World, as_owner: Callable[[str], None], change: str, check: str, says: str
) -> None:
    as_owner(change)
    findings = found(quick=True)
    assert wrong(findings) == {check: "fail"}
    assert says in findings[check].said
    assert findings[check].mend


def test_a_role_that_may_do_too_much_is_found(here: World, urls: PostgresUrls) -> None:  # K71
    with psycopg.connect(engines.current().superuser_url, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE doctors_group")
        superuser.execute(
            "CREATE ROLE doctors_patient LOGIN PASSWORD 'x' CREATEROLE CREATEDB IN ROLE doctors_group"
        )
        superuser.execute("GRANT second_key_app TO doctors_patient")
        superuser.execute(f"GRANT CONNECT ON DATABASE {DATABASE} TO doctors_patient")
        superuser.execute("ALTER ROLE doctors_group BYPASSRLS")
        try:
            url = urls.app_url.split("@")[1]
            done = manage("doctor", "--quick", DATABASE_URL=f"postgresql://doctors_patient:x@{url}")
            assert done.returncode == 1
            assert "doctors_patient is a member of doctors_group, which has BYPASSRLS" in done.stdout
            for reach in ("may create roles", "may create databases", "is a member of second_key_app"):
                assert reach in done.stdout
            assert "ALTER ROLE doctors_patient NOCREATEROLE" in done.stdout
        finally:
            superuser.execute(f"REVOKE ALL ON DATABASE {DATABASE} FROM doctors_patient")
            superuser.execute("DROP ROLE doctors_patient")
            superuser.execute("DROP ROLE doctors_group")


def pending(here: World, *, step: str) -> UUID:
    """An action before a reviewer, with no next step at all."""
    with tenant_transaction(here.tenant_id) as tx:
        now = tx.now()
        return Action.objects.create(
            tenant_id=here.tenant_id,
            agent=here.agent,
            kind="refund",
            schema_version=1,
            run_id="run_1",
            step_id=step,
            submitted="{}",
            parameters="{}",
            request_fingerprint="sha256:" + "0" * 64,
            fingerprint="sha256:" + "0" * 64,
            account=here.account,
            policy_version=1,
            policy_outcome={},
            expires_at=now + timedelta(hours=1),
            created_at=now,
            updated_at=now,
        ).id


def missing(here: World) -> set[tuple[str, UUID]]:
    """What doctor finds without a next step."""
    with work.one_moment(here.tenant_id):
        return {(one.step, one.subject_id) for one in work.without_next_step(here.tenant_id)}


def test_an_operation_without_its_next_step_is_found(here: World) -> None:  # R-C6, K19
    operation = refund(here, "pi_1")
    assert missing(here) == set()
    Outbox.objects.filter(subject_id=operation.id).delete()
    assert missing(here) == {("execute", operation.id)}
    for state, step in (
        (OperationState.DISPATCHED, "watchdog"),
        (OperationState.OUTCOME_UNKNOWN, "reconcile"),
    ):
        with tenant_transaction(here.tenant_id) as tx:
            lease = {"lease_owner": new_id(), "lease_until": tx.after(30)}
            Operation.objects.filter(id=operation.id).update(state=state, **lease)
        assert missing(here) == {(step, operation.id)}
        with tenant_transaction(here.tenant_id) as tx:
            tx.schedule(step, operation.id, due_at=tx.after(60))
        assert missing(here) == set()
    with tenant_transaction(here.tenant_id):
        Operation.objects.filter(id=operation.id).update(state=OperationState.RECONCILED_SUCCEEDED)
    Outbox.objects.filter(subject_id=operation.id).delete()
    assert missing(here) == set()


def test_an_effect_that_waits_for_another_needs_no_step_yet(here: World) -> None:  # R-C9
    first = refund(here, "pi_1")
    with tenant_transaction(here.tenant_id) as tx:
        second = open_operation(
            tx,
            action_id=first.action_id,
            run_id="run_1",
            kind="refund",
            kind_version=1,
            effect="notify",
            sequence=2,
            parameters={},
            fingerprint=first.fingerprint,
            account=here.account,
            resource_key="mail:1",
            amount=None,
            currency="",
            execute_before=None,
            actor=SYSTEM,
        )
    assert missing(here) == set()
    with tenant_transaction(here.tenant_id):
        lease = {"lease_owner": new_id(), "lease_until": first.created_at}
        Operation.objects.filter(id=first.id).update(state=OperationState.DISPATCHED, **lease)
        Operation.objects.filter(id=first.id).update(state=OperationState.SUCCEEDED)
    assert missing(here) == {("execute", second.id)}


def test_a_pending_action_without_its_expiry_is_found(here: World) -> None:  # R-B5
    action_id = pending(here, step="one")
    findings = found(quick=True)
    assert wrong(findings) == {"next steps": "fail"}
    assert f"expire {action_id} (tenant {here.tenant_id})" in findings["next steps"].said
    assert missing(here) == {("expire", action_id), ("observe", action_id)}
    # the statement that doctor prints puts the work back
    statement = findings["next steps"].mend.partition("INSERT")[2]
    for step in ("expire", "observe"):
        filled = statement.replace("<tenant>", str(here.tenant_id)).replace("<step>", step)
        with connection.cursor() as cursor:
            cursor.execute("INSERT" + filled.replace("<id>", str(action_id)))
    assert missing(here) == set()


def test_an_old_step_means_that_nobody_works(here: World, as_owner: Callable[[str], None]) -> None:
    refund(here, "pi_1")
    as_owner("UPDATE ledger_outbox SET due_at = now() - interval '5 minutes'")
    findings = found(quick=True)
    assert wrong(findings) == {"outbox": "warn"}
    assert findings["outbox"].said == "1 step is due, the oldest for 300 s"
    assert "worker" in findings["outbox"].mend


def test_a_journal_that_was_changed_is_found(here: World, as_owner: Callable[[str], None]) -> None:  # R-F1
    as_owner(
        "ALTER TABLE ledger_journalentry DISABLE TRIGGER append_only;"
        "UPDATE ledger_journalentry SET event = 'forged' WHERE seq = 2;"
        "ALTER TABLE ledger_journalentry ENABLE TRIGGER append_only"
    )
    assert wrong(found(quick=True)) == {}
    findings = found()
    assert wrong(findings) == {"journal": "fail"}
    assert "entry 2 was changed" in findings["journal"].said


def test_a_running_system_does_not_look_broken(here: World, urls: PostgresUrls) -> None:
    with work.one_moment(here.tenant_id):
        assert not Operation.objects.exists()
        with psycopg.connect(urls.app_url) as rival:
            rival.execute("SELECT set_config('app.tenant', %s, true)", [str(here.tenant_id)])
            rival.execute("UPDATE ledger_chainhead SET seq = seq + 1")
        check = work.journal.verify(here.tenant_id)  # type: ignore[attr-defined]
        assert not check.fault
    with tenant_reads(here.tenant_id):
        assert work.journal.verify(here.tenant_id).fault  # type: ignore[attr-defined]


def test_a_secret_that_no_key_opens_is_found(here: World, settings: Settings) -> None:
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *settings.ENCRYPTION_KEYS]
    assert wrong(found(quick=True)) == {}
    settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS[:1]
    findings = found(quick=True)
    assert wrong(findings) == {"provider secrets": "fail"}
    assert "stripe main" in findings["provider secrets"].said
    with tenant_transaction(here.tenant_id) as tx:
        ProviderAccount.objects.filter(id=here.account.id).update(disabled_at=tx.now())
        accounts.create_account(
            tx, provider="stripe", name="new", base_url="https://x.test", secret="sk_test_new"
        )
    assert wrong(found(quick=True)) == {}


def test_the_command_fails_with_a_count(here: World, as_owner: Callable[[str], None]) -> None:
    as_owner("ALTER TABLE approvals_action DISABLE ROW LEVEL SECURITY")
    assert refused("doctor", "--quick").startswith("1 of ")
