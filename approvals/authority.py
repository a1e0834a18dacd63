"""Who may decide: one question, one function, used by every route that decides (R-B3, R-B6, K38, K41).

Asked again at each decision from live rows inside the tenant's transaction, under its shared stop lock.
Nothing here is cached, and no session, page or token is believed about roles.
"""

from collections.abc import Iterable
from uuid import UUID

from approvals import tenants
from approvals.models import Action, Agent, Membership, MembershipRole, Role, User
from approvals.refusals import NotEntitledError

__all__ = ["NotEntitledError", "entitled", "needed_roles", "still_entitled"]

DEFAULT_ROLES = (str(Role.REVIEWER),)


def needed_roles(action: Action) -> tuple[str, ...]:
    """The roles of which one is needed, as the policy said when the action was weighed."""
    named = action.policy_outcome.get("roles") or DEFAULT_ROLES
    return tuple(str(role) for role in named)


def entitled(user: User, action: Action, tenant_id: UUID) -> None:
    """Nothing where `user` may decide on `action` now, else NotEntitledError. Takes no row locks."""
    if not User.objects.filter(pk=user.pk, is_active=True).exists():
        raise NotEntitledError("inactive", "This account is switched off.")
    if not Membership.objects.filter(user_id=user.pk, tenant_id=tenant_id).exists():
        raise NotEntitledError("not_a_member", "You are not a member of this tenant.")
    roles = needed_roles(action)
    if not tenants.roles_of(user, tenant_id) & set(roles):
        raise NotEntitledError("role_missing", f"Deciding on this needs the role {' or '.join(roles)}.")
    if Agent.objects.filter(pk=action.agent_id, owner_id=user.pk).exists():
        raise NotEntitledError(
            "own_agent", "You own the agent that asks for this, so somebody else has to decide (four eyes)."
        )


def still_entitled(
    user_ids: Iterable[int], action: Action, tenant_id: UUID, roles: Iterable[str]
) -> frozenset[int]:
    """Those of `user_ids` who are active members with one of `roles` and do not own the action's agent."""
    owner = Agent.objects.filter(pk=action.agent_id).values_list("owner_id", flat=True).first()
    wanted = set(user_ids) - {owner}
    active = User.objects.filter(pk__in=wanted, is_active=True, memberships__tenant_id=tenant_id)
    holding = MembershipRole.objects.filter(tenant_id=tenant_id, role__in=list(roles), user_id__in=wanted)
    return frozenset(active.values_list("pk", flat=True)) & frozenset(
        holding.values_list("user_id", flat=True)
    )
