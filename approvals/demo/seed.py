"""What the demonstration finds: two tenants, their people and agents, accounts at the sandbox, payments there.

Passwords and tokens are made at the first start and kept in `.local`, for a token cannot be read again.
Seeding twice changes nothing; what was lost on one side is made anew.
"""

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

from approvals import agents, policies, tenants
from approvals.embedded.keys import write_private
from approvals.models import Agent, AgentToken, Role, User
from ledger import accounts
from ledger.models import ProviderAccount
from ledger.transactions import tenant_reads, tenant_transaction

CAST: dict[str, dict[str, Any]] = {
    "acme": {
        "name": "Acme",
        "agents": ["support-bot"],
        "reviewers": {"rana": "Rana Aziz", "omar": "Omar Haddad"},
        "admins": {"ada": "Ada Berg"},
    },
    "globex": {
        "name": "Globex",
        "agents": ["billing-bot"],
        "reviewers": {"gil": "Gil Moreno"},
        "admins": {"gus": "Gus Lind"},
    },
}
PAYERS = (
    "Dana Fox",
    "Sam Okafor",
    "Mia Chen",
    "Noor Khalil",
    "Jan Novak",
    "Ana Costa",
    "Leo Brandt",
    "Eve Hart",
)
POLICY: dict[str, Any] = {
    "rules": [
        {
            "name": "refunds up to 500",
            "when": {"currency": "usd", "max_amount": 50_000},
            "outcome": "review",
            "quorum": 1,
            "roles": ["reviewer"],
        },
        {
            "name": "larger refunds need two",
            "when": {"currency": "usd"},
            "outcome": "review",
            "quorum": 2,
            "roles": ["reviewer"],
        },
        {
            "name": "yen refunds up to 50,000",
            "when": {"currency": "jpy", "max_amount": 50_000},
            "outcome": "review",
            "quorum": 1,
            "roles": ["reviewer"],
        },
        {
            "name": "dinar refunds up to 150",
            "when": {"currency": "kwd", "max_amount": 150_000},
            "outcome": "review",
            "quorum": 1,
            "roles": ["reviewer"],
        },
    ],
    "expires_in": 3600,
    "execute_within": 3600,
}


@dataclass
class Cast:
    """Who plays in a tenant: names with their passwords and tokens, and what was seeded at the sandbox."""

    agents: dict[str, str] = field(default_factory=dict)
    reviewers: dict[str, str] = field(default_factory=dict)
    admins: dict[str, str] = field(default_factory=dict)
    provider_secret: str = ""
    payments: list[str] = field(default_factory=list)


def load(path: Path) -> dict[str, Cast]:
    """What earlier starts wrote; empty where there was none."""
    try:
        return {slug: Cast(**values) for slug, values in json.loads(path.read_text()).items()}
    except FileNotFoundError:
        return {}


def seed(path: Path, sandbox_url: str) -> dict[str, Cast]:
    """Make what is missing, and keep names and secrets in `path` (readable by us alone)."""
    cast = load(path)
    for slug, parts in CAST.items():
        cast.setdefault(slug, Cast())
        seed_tenant(slug, parts, cast[slug], sandbox_url)
        write_private(path, json.dumps({name: asdict(one) for name, one in cast.items()}, indent=1) + "\n")
    return cast


def seed_tenant(slug: str, parts: dict[str, Any], cast: Cast, sandbox_url: str) -> None:
    """One tenant with everybody in it."""
    tenant_id = next(tenants.tenants_with_slug(slug), None) or tenants.create_tenant(
        slug=slug, name=parts["name"]
    )
    for group, known, role in (
        ("reviewers", cast.reviewers, Role.REVIEWER),
        ("admins", cast.admins, Role.ADMIN),
    ):
        for username, full_name in parts[group].items():
            known[username] = seed_person(tenant_id, username, full_name, role, known.get(username))
    owner = User.objects.get(username=next(iter(parts["admins"])))
    for name in parts["agents"]:
        cast.agents[name] = seed_agent(tenant_id, name, owner, cast.agents.get(name))
    cast.provider_secret = cast.provider_secret or f"sk_test_{secrets.token_hex(16)}"
    seed_account(tenant_id, cast.provider_secret, sandbox_url)
    with tenant_reads(tenant_id):
        published = policies.current(tenant_id, "refund")
    if published is None:
        policies.publish(tenant_id, kind="refund", document=POLICY, by="demo")
    if not cast.payments:
        cast.payments = seed_payments(cast.provider_secret, sandbox_url)


def seed_person(tenant_id: UUID, username: str, full_name: str, role: Role, password: str | None) -> str:
    """A person with a role; a password that is unknown is made anew."""
    user = User.objects.filter(username=username).first()
    if user is None:
        password = password or secrets.token_urlsafe(12)
        user = tenants.create_person(username=username, password=password, full_name=full_name)
    elif password is None or not user.check_password(password):
        password = secrets.token_urlsafe(12)
        user.set_password(password)
        user.save(update_fields=["password"])
    with tenant_reads(tenant_id):
        held = tenants.roles_of(user, tenant_id)
    if role not in held:
        tenants.grant_roles(tenant_id, user, [role])
    return password


def seed_agent(tenant_id: UUID, name: str, owner: User, token: str | None) -> str:
    """An agent; a token that is unknown is made anew."""
    if token and AgentToken.objects.filter(digest=agents.token_digest(token), tenant_id=tenant_id).exists():
        return token
    with tenant_reads(tenant_id):
        known = Agent.objects.filter(tenant_id=tenant_id, name=name).first()
    if known is not None:
        return agents.add_token(tenant_id, known.id)
    return agents.create_agent(tenant_id, name=name, owner=owner)


def seed_account(tenant_id: UUID, secret: str, sandbox_url: str) -> None:
    """The provider account, at the sandbox's address of today."""
    with tenant_transaction(tenant_id) as tx:
        known = ProviderAccount.objects.filter(tenant_id=tenant_id, provider="stripe", name="sandbox").first()
        if known is None:
            accounts.create_account(
                tx, provider="stripe", name="sandbox", base_url=sandbox_url, secret=secret
            )
        else:
            ProviderAccount.objects.filter(id=known.id).update(
                base_url=sandbox_url, encrypted_secret=accounts.encrypt(secret)
            )


def seed_payments(secret: str, sandbox_url: str) -> list[str]:
    """Ten payments of 1,000.00 USD, two in yen and two in dinars."""
    wanted = [
        {"amount": 100_000, "currency": "usd", "name": PAYERS[n % 8], "last4": f"{4242 + n}"}
        for n in range(10)
    ]
    wanted += [{"amount": 100_000, "currency": "jpy", "name": name} for name in ("Yuki Mori", "Ren Sato")]
    wanted += [
        {"amount": 100_000, "currency": "kwd", "name": name} for name in ("Fahad Salem", "Lulwa Nasser")
    ]
    return at_sandbox(sandbox_url, secret, wanted)


def at_sandbox(sandbox_url: str, secret: str, payments: list[dict[str, Any]]) -> list[str]:
    """Seed payments in an account's books; returns their ids."""
    answer = httpx.post(
        f"{sandbox_url}/_sandbox/seed",
        json={"account": secret, "payments": payments},
        timeout=10,
        trust_env=False,
    )
    answer.raise_for_status()
    return [payment["id"] for payment in answer.json()["payments"]]
