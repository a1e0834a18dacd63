"""A fresh tenant for each test, with an agent, people, a provider account and a policy."""

import secrets
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from django.contrib.auth.hashers import make_password

from approvals import agents, policies, tenants
from approvals.models import Agent, Role, User
from ledger import accounts
from ledger.models import ProviderAccount
from ledger.transactions import tenant_reads, tenant_transaction

PASSWORD = "correct horse battery staple"
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
            "name": "small yen refunds",
            "when": {"currency": "jpy", "max_amount": 100_000},
            "outcome": "review",
            "quorum": 1,
            "roles": ["reviewer"],
        },
        {
            "name": "large refunds",
            "when": {"currency": "usd"},
            "outcome": "review",
            "quorum": 2,
            "roles": ["reviewer"],
        },
    ],
    "expires_in": 3600,
    "execute_within": 3600,
}


@dataclass(frozen=True, kw_only=True)
class World:
    """One tenant and everybody in it."""

    tenant_id: UUID
    agent: Agent
    token: str
    reviewers: tuple[User, ...]
    admin: User
    account: ProviderAccount
    provider_secret: str


@cache
def hashed_password() -> str:
    """The hash of PASSWORD, made once a run: hashing is slow on purpose."""
    return make_password(PASSWORD)


def person(prefix: str) -> User:
    """A person with a name that no other test uses; signs in with PASSWORD."""
    return User.objects.create(
        username=f"{prefix}-{secrets.token_hex(6)}",
        first_name=prefix.capitalize(),
        last_name="Test",
        password=hashed_password(),
    )


def world(
    *, provider_url: str = "http://127.0.0.1:9", policy: dict[str, Any] | None = None, reviewers: int = 2
) -> World:
    """A tenant with one agent (owned by the admin), reviewers, an admin, a Stripe account at `provider_url`."""
    tenant_id = tenants.create_tenant(slug=f"t-{secrets.token_hex(6)}", name="Test tenant")
    admin = person("ada")
    tenants.grant_roles(tenant_id, admin, [Role.ADMIN])
    people = tuple(person(name) for name in ("rana", "omar", "gil", "zoe")[:reviewers])
    for one in people:
        tenants.grant_roles(tenant_id, one, [Role.REVIEWER])
    token = agents.create_agent(tenant_id, name="support-bot", owner=admin)
    secret = f"sk_test_{secrets.token_hex(12)}"
    with tenant_transaction(tenant_id) as tx:
        account = accounts.create_account(
            tx, provider="stripe", name="main", base_url=provider_url, secret=secret
        )
    policies.publish(tenant_id, kind="refund", document=policy or POLICY, by="test")
    with tenant_reads(tenant_id):
        agent = Agent.objects.get(tenant_id=tenant_id)
    return World(
        tenant_id=tenant_id,
        agent=agent,
        token=token,
        reviewers=people,
        admin=admin,
        account=account,
        provider_secret=secret,
    )
