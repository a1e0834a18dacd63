"""The commands that make the first ones: what they make, what they refuse, and that nothing is half done."""

import json
import secrets
import sys
from io import StringIO
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from approvals import agents, docs, policies, tenants
from approvals.models import Agent, AgentToken, Membership, PolicyVersion, Role, TenantProfile, User
from ledger import accounts, journal
from ledger.models import JournalEntry, JournalPayload, ProviderAccount
from ledger.transactions import tenant_reads
from tests.command_line import manage, refused, run

pytestmark = pytest.mark.usefixtures("db")

GOOD = "a long enough passphrase"


@pytest.fixture
def slug() -> str:
    """A tenant that a command made."""
    name = f"t-{secrets.token_hex(6)}"
    run("create_tenant", name, "--name", "Acme & Söhne")
    return name


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that nobody has, and a password for them in the environment."""
    monkeypatch.setenv("SECOND_KEY_PASSWORD", GOOD)
    return f"ada-{secrets.token_hex(6)}"


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(text))


def events(slug: str) -> list[str]:
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        assert not journal.verify(tenant_id).fault
        return list(JournalEntry.objects.order_by("seq").values_list("event", flat=True))


def test_a_tenant_is_made_with_its_journal_and_its_settings() -> None:
    slug = f"t-{secrets.token_hex(6)}"
    said = run("create_tenant", slug, "--name", "Acme", "--time-zone", "Asia/Kolkata")
    assert f"create_admin {slug}" in said.out
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        profile = TenantProfile.objects.get(tenant_id=tenant_id)
    assert (profile.name, profile.time_zone) == ("Acme", "Asia/Kolkata")
    assert events(slug) == ["tenant.created"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("no spaces here",), "short name"),
        (("a" * 61,), "1 to 60 characters"),
        (("",), "1 to 60 characters"),
        (("fine", "--name", "a\u202eb"), "all of them visible"),
        (("fine", "--time-zone", "Mars/Olympus"), "no time zone"),
        (("fine", "--time-zone", "../../etc/passwd"), "no time zone"),
    ],
)
def test_a_tenant_with_a_bad_name_is_refused(words: tuple[str, ...], says: str) -> None:
    before = len(tenants.tenant_ids())
    assert says in refused("create_tenant", *words)
    assert len(tenants.tenant_ids()) == before


def test_a_taken_short_name_is_refused(slug: str) -> None:
    assert "already" in refused("create_tenant", slug)


def test_an_administrator_can_sign_in_and_holds_the_roles(slug: str, somebody: str) -> None:
    run(
        "create_admin",
        slug,
        somebody,
        "--roles",
        "admin, reviewer",
        "--email",
        "ada@example.com",
        "--full-name",
        "Ada Berg",
    )
    user = User.objects.get(username=somebody)
    assert user.check_password(GOOD)
    assert (user.first_name, user.last_name, user.email) == ("Ada", "Berg", "ada@example.com")
    assert not user.is_staff
    assert not user.is_superuser
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        assert tenants.roles_of(user, tenant_id) == {Role.ADMIN, Role.REVIEWER}
    assert events(slug) == ["tenant.created", "member.granted"]


def test_who_exists_gets_roles_added_and_keeps_the_password(
    slug: str, somebody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create_admin", slug, somebody)
    monkeypatch.setenv("SECOND_KEY_PASSWORD", "another long passphrase")
    said = run("create_admin", slug, somebody, "--roles", "auditor")
    assert "password stays" in said.out
    user = User.objects.get(username=somebody)
    assert user.check_password(GOOD)
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        assert tenants.roles_of(user, tenant_id) == {Role.ADMIN, Role.AUDITOR}


def test_a_password_comes_from_standard_input(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"omar-{secrets.token_hex(6)}"
    type_in(monkeypatch, f"{GOOD}\nand this is not part of it\n")
    run("create_admin", slug, name, "--password-stdin")
    assert User.objects.get(username=name).check_password(GOOD)


def test_a_password_is_asked_for_twice(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"rana-{secrets.token_hex(6)}"
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    typed = [GOOD, GOOD + "x", GOOD, GOOD]
    monkeypatch.setattr("getpass.getpass", lambda prompt: typed.pop(0))
    assert "differ" in refused("create_admin", slug, name)
    assert not User.objects.filter(username=name).exists()
    run("create_admin", slug, name)
    assert User.objects.get(username=name).check_password(GOOD)


@pytest.mark.parametrize("weak", ["short", "password1234", "the name"])
def test_a_weak_password_is_refused_and_nobody_is_made(
    slug: str, somebody: str, weak: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECOND_KEY_PASSWORD", somebody if weak == "the name" else weak)
    assert "password" in refused("create_admin", slug, somebody)
    assert not User.objects.filter(username=somebody).exists()


def test_without_anybody_to_ask_the_ways_are_named(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECOND_KEY_PASSWORD", raising=False)
    type_in(monkeypatch, "")
    said = refused("create_admin", slug, "nobody")
    assert "standard input" in said
    assert "SECOND_KEY_PASSWORD" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fine", "--roles", "admin,emperor"), "roles are reviewer, auditor, operator, admin"),
        (("fine", "--roles", ","), "at least one role"),
        (("no spaces",), "username"),
        (("a" * 151,), "username"),
        (("fine", "--email", "nonsense"), "email"),
        (("fine", "--full-name", "a\nb"), "in one line"),
    ],
)
def test_a_bad_person_is_refused_and_nothing_is_half_done(
    slug: str, somebody: str, words: tuple[str, ...], says: str
) -> None:
    name = f"{somebody}-{words[0]}" if words[0] == "fine" else words[0]
    assert says in refused("create_admin", slug, name, *words[1:])
    assert not User.objects.filter(username=name).exists()
    assert events(slug) == ["tenant.created"]


def test_a_name_that_differs_only_in_its_case_is_the_same_name(slug: str, somebody: str) -> None:
    run("create_admin", slug, somebody)
    assert "one name" in refused("create_admin", slug, somebody.upper())
    assert User.objects.filter(username__iexact=somebody).count() == 1


def test_an_account_that_is_switched_off_gets_no_roles(slug: str, somebody: str) -> None:
    run("create_admin", slug, somebody)
    User.objects.filter(username=somebody).update(is_active=False)
    assert "switched off" in refused("create_admin", slug, somebody, "--roles", "auditor")
    assert events(slug) == ["tenant.created", "member.granted"]


def test_a_failure_in_between_leaves_no_account(
    slug: str, somebody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*args: object) -> None:
        raise tenants.TenantError("the machine stopped")

    monkeypatch.setattr(tenants, "grant_roles", breaks)
    assert refused("create_admin", slug, somebody) == "the machine stopped"
    assert not User.objects.filter(username=somebody).exists()


@pytest.mark.parametrize(
    "command",
    [
        ("create_admin", "nowhere", "ada"),
        ("create_agent", "nowhere", "bot"),
        ("create_provider_account", "nowhere"),
        ("publish_policy", "nowhere", "refund", "policy.json"),
    ],
)
def test_an_unknown_tenant_is_named_with_the_way_to_make_it(command: tuple[str, ...]) -> None:
    assert (
        refused(*command) == "There is no tenant 'nowhere'; make it with `manage.py create_tenant nowhere`."
    )


def test_an_agent_s_token_is_printed_once_and_kept_as_a_digest(slug: str, somebody: str) -> None:
    run("create_admin", slug, somebody)
    said = run("create_agent", slug, "support-bot", "--owner", somebody)
    token = said.out.strip()
    assert said.out == f"{token}\n"
    assert token not in said.err
    tenant_id = tenants.find_tenant(slug)
    known = AgentToken.objects.get(digest=agents.token_digest(token), tenant_id=tenant_id)
    with tenant_reads(tenant_id):
        agent = Agent.objects.get(id=known.agent_id)
        assert agent.owner is not None
        assert agent.owner.username == somebody
    assert events(slug)[-1] == "agent.created"


def test_a_bad_agent_is_refused(slug: str, somebody: str) -> None:
    run("create_agent", slug, "support-bot")
    assert "already" in refused("create_agent", slug, "support-bot")
    assert "1 to 80 characters" in refused("create_agent", slug, "b" * 81)
    assert "nobody in" in refused("create_agent", slug, "other-bot", "--owner", "nobody-at-all")
    elsewhere = f"t-{secrets.token_hex(6)}"
    run("create_tenant", elsewhere)
    run("create_admin", elsewhere, somebody)
    assert "nobody in" in refused("create_agent", slug, "other-bot", "--owner", somebody)
    tenant_id = tenants.find_tenant(slug)
    assert AgentToken.objects.filter(tenant_id=tenant_id).count() == 1
    assert not Membership.objects.filter(tenant_id=tenant_id).exists()


def test_a_provider_account_is_stored_encrypted(slug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = f"sk_test_{secrets.token_hex(12)}"
    type_in(monkeypatch, f"{secret}\n")
    said = run("create_provider_account", slug, "--base-url", "https://api.example.com/", "--secret-stdin")
    assert secret not in said.out + said.err
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        account = ProviderAccount.objects.get(tenant_id=tenant_id)
        payloads = "".join(JournalPayload.objects.values_list("text", flat=True))
    assert (account.provider, account.name, account.base_url) == ("stripe", "main", "https://api.example.com")
    assert secret.encode() not in bytes(account.encrypted_secret)
    assert accounts.decrypt(account.encrypted_secret) == secret
    assert secret not in payloads
    assert events(slug)[-1] == "provider_account.created"
    assert "already" in refused("create_provider_account", slug, "--secret-stdin")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8010", "http://localhost:8010", "http://[::1]:8010"])
def test_plain_http_is_for_this_machine(slug: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, "sk_test_something\n")
    assert url in run("create_provider_account", slug, "--base-url", url, "--secret-stdin").out


@pytest.mark.parametrize(
    ("words", "typed", "says"),
    [
        (("--base-url", "http://api.example.com"), "sk_test_something", "use https"),
        (("--base-url", "ftp://api.example.com"), "sk_test_something", "https://host"),
        (("--base-url", "https://user:pass@api.example.com"), "sk_test_something", "no path"),
        (("--base-url", "https://api.example.com/v1"), "sk_test_something", "no path"),
        (("--base-url", "https://" + "a" * 300), "sk_test_something", "longer than 300"),
        (("--base-url", "https://host:99999"), "sk_test_something", "nothing was stored"),
        (("--base-url", ""), "sk_test_something", "https://host"),
        (("--provider", "paypal"), "sk_test_something", "known are"),
        (("--name", ""), "sk_test_something", "1 to 80 characters"),
        ((), "", "held no secret key"),
        ((), "short", "not a Stripe key"),
        ((), "sk_test with spaces", "not a Stripe key"),
    ],
)
def test_a_bad_provider_account_is_refused(
    slug: str, words: tuple[str, ...], typed: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, typed)
    said = refused("create_provider_account", slug, *words, "--secret-stdin")
    assert says in said
    assert "sk_test" not in said
    assert events(slug) == ["tenant.created"]


def test_a_provider_account_needs_an_encryption_key(
    slug: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.ENCRYPTION_KEYS = []
    type_in(monkeypatch, "sk_test_something\n")
    assert "SECOND_KEY_ENCRYPTION_KEYS is empty" in refused("create_provider_account", slug, "--secret-stdin")
    assert events(slug) == ["tenant.created"]


def test_a_policy_is_published_as_the_next_version(slug: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(docs.POLICY)
    assert "Version 1" in run("publish_policy", slug, "refund", str(file), "--by", "ada").out
    assert "already" in run("publish_policy", slug, "refund", str(file)).out
    file.write_text(docs.POLICY.replace("50000", "60000"))
    assert "Version 2" in run("publish_policy", slug, "refund", str(file)).out
    tenant_id = tenants.find_tenant(slug)
    with tenant_reads(tenant_id):
        standing = policies.current(tenant_id, "refund")
        first = PolicyVersion.objects.get(tenant_id=tenant_id, version=1)
    assert standing is not None
    assert standing.version == 2
    assert first.created_by == "ada"
    assert first.rules == json.loads(docs.POLICY)
    assert events(slug) == ["tenant.created", "policy.published", "policy.published"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b'{"rules": [], "rules": []}', "one way only"),
        (b"\xff", "not JSON"),
        (b'{"rules": [{"name": "x", "outcome": "maybe"}]}', "rules[0].outcome must be allow, deny or review"),
        (b'{"rulez": []}', "unknown members: rulez"),
        (b"[]", "must be an object"),
    ],
)
def test_a_bad_policy_is_refused(slug: str, content: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_bytes(content)
    said = refused("publish_policy", slug, "refund", str(file))
    assert says in said
    assert "Nothing was published" in said
    assert events(slug) == ["tenant.created"]


def test_a_policy_needs_a_kind_and_a_file(slug: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    assert "cannot be read: No such file" in refused("publish_policy", slug, "refund", str(file))
    file.write_text(docs.POLICY)
    assert "known are refund" in refused("publish_policy", slug, "ransom", str(file))


def test_a_script_can_use_them() -> None:
    slug = f"t-{secrets.token_hex(6)}"
    assert manage("create_tenant", slug).returncode == 0
    again = manage("create_tenant", slug)
    assert again.returncode == 1
    assert again.stderr.strip() == f"CommandError: There is a tenant '{slug}' already."
    name = f"zoe-{secrets.token_hex(6)}"
    made = manage("create_admin", slug, name, "--password-stdin", standard_input=f"{GOOD}\n")
    assert (made.returncode, made.stderr) == (0, "")
    assert GOOD not in made.stdout
    token = manage("create_agent", slug, "bot")
    assert token.returncode == 0
    assert AgentToken.objects.filter(digest=agents.token_digest(token.stdout.strip())).exists()


def test_without_a_database_a_command_says_so() -> None:
    done = manage("create_tenant", "acme", DATABASE_URL="postgresql://app@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "The database does not answer" in done.stderr
    assert "manage.py doctor" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_makes_no_sense_ends_in_one_sentence() -> None:
    done = manage("create_tenant", "acme", LEDGER_DEADLINE_SECONDS="soon")
    assert done.returncode == 1
    assert done.stderr.strip() == "LEDGER_DEADLINE_SECONDS='soon': write a number from 0.2 to 300"
    done = manage("create_tenant", "acme", SECRET_KEY="")
    assert done.returncode == 1
    assert done.stderr.startswith("SECRET_KEY is not set")
