"""The tables of the approval side: who there is, what was asked, what was decided."""

from approvals.models.actions import Action, ActionStatus, Decision, Vote, VoteEvent
from approvals.models.idempotency import IdempotencyRecord
from approvals.models.policies import PolicyPointer, PolicyVersion
from approvals.models.tenants import (
    Agent,
    AgentToken,
    Membership,
    MembershipRole,
    Role,
    Tenant,
    TenantProfile,
    User,
)

__all__ = [
    "Action",
    "ActionStatus",
    "Agent",
    "AgentToken",
    "Decision",
    "IdempotencyRecord",
    "Membership",
    "MembershipRole",
    "PolicyPointer",
    "PolicyVersion",
    "Role",
    "Tenant",
    "TenantProfile",
    "User",
    "Vote",
    "VoteEvent",
]
