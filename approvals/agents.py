"""Agents and their tokens. A token is shown once and kept only as a digest; revoking holds once it has answered."""

import hashlib
import secrets
from uuid import UUID

from approvals.models import Agent, AgentToken, User
from ledger.journal import SYSTEM
from ledger.locks import stop_lock_exclusive
from ledger.transactions import tenant_transaction

SCOPES = ("actions:read", "actions:write")


def token_digest(token: str) -> str:
    """What is stored and looked up: the hex SHA-256 of a token of 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def create_agent(
    tenant_id: UUID, *, name: str, owner: User | None = None, scopes: tuple[str, ...] = SCOPES
) -> str:
    """Make an agent and return its token, which cannot be read again."""
    token = f"sk2_{secrets.token_urlsafe(32)}"
    with tenant_transaction(tenant_id) as tx:
        now = tx.now()
        agent = Agent.objects.create(
            tenant_id=tenant_id, name=name, owner=owner, scopes=list(scopes), created_at=now
        )
        AgentToken.objects.create(
            digest=token_digest(token), agent_id=agent.id, tenant_id=tenant_id, created_at=now
        )
        tx.journal(
            "agent.created",
            actor=SYSTEM,
            agent=agent.id,
            name=name,
            owner=owner.username if owner else None,
            scopes=list(scopes),
        )
    return token


def revoke_agent(tenant_id: UUID, agent_id: UUID) -> None:
    """Refuse everything the agent asks from now on, and what of it is not dispatched yet (R-C5)."""
    with tenant_transaction(tenant_id) as tx:
        stop_lock_exclusive(tenant_id)
        Agent.objects.filter(id=agent_id).update(revoked_at=tx.now())
        AgentToken.objects.filter(agent_id=agent_id, tenant_id=tenant_id).delete()
        tx.journal("agent.revoked", actor=SYSTEM, agent=agent_id)


def add_token(tenant_id: UUID, agent_id: UUID) -> str:
    """Another token for an agent, beside those it has; shown once."""
    token = f"sk2_{secrets.token_urlsafe(32)}"
    with tenant_transaction(tenant_id) as tx:
        AgentToken.objects.create(
            digest=token_digest(token), agent_id=agent_id, tenant_id=tenant_id, created_at=tx.now()
        )
        tx.journal("agent.token_added", actor=SYSTEM, agent=agent_id)
    return token
