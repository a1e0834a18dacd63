"""Which request takes which of the sandbox's faults."""

from typing import Any

import pytest

from ledger.providers.sandbox.errors import ApiError
from ledger.providers.sandbox.faults import Armed, Kind, parse


def armed(*faults: dict[str, Any]) -> Armed:
    found = Armed()
    found.arm(parse([{"on": "refund.create", **fault} for fault in faults]))
    return found


def kinds(found: Armed, count: int, payment: str | None = None) -> list[Kind | None]:
    return [found.take("refund.create", payment).kind for _ in range(count)]


def test_in_order_and_times_each() -> None:
    found = armed({"fault": "lose_ack", "times": 2}, {"fault": "error_before"})
    assert kinds(found, 4) == [Kind.LOSE_ACK, Kind.LOSE_ACK, Kind.ERROR_BEFORE, None]
    assert not found


def test_posts_add_and_an_empty_list_disarms() -> None:
    found = armed({"fault": "lose_ack"})
    found.arm(parse([{"on": "refund.create", "fault": "truncate"}]))
    assert [one["fault"] for one in found.listed()] == ["lose_ack", "truncate"]
    found.arm(parse([]))
    assert kinds(found, 1) == [None]


def test_other_operations_and_payments_are_left_alone() -> None:
    found = armed({"fault": "lose_ack", "payment": "pi_1"}, {"fault": "truncate"})
    assert found.take("refund.list", "pi_1").kind is None
    assert kinds(found, 2, "pi_2") == [Kind.TRUNCATE, None]
    assert kinds(found, 2, "pi_1") == [Kind.LOSE_ACK, None]


@pytest.mark.parametrize("hidden_first", [True, False])
def test_hiding_goes_together_with_a_fault_of_the_answer(hidden_first: bool) -> None:
    pair: list[dict[str, Any]] = [{"fault": "hide_from_list", "seconds": 9}, {"fault": "lose_ack"}]
    taken = armed(*(pair if hidden_first else pair[::-1])).take("refund.create", None)
    assert (taken.kind, taken.hide) == (Kind.LOSE_ACK, 9)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_fault_of_the_contract_can_be_armed(kind: Kind) -> None:
    assert armed({"fault": str(kind), "seconds": 1, "code": "card_declined"})


@pytest.mark.parametrize("seconds", [None, -1, "5", True, float("nan"), float("inf"), 10**9])
def test_seconds_are_a_sane_number(seconds: Any) -> None:
    with pytest.raises(ApiError, match="seconds"):
        parse([{"on": "refund.create", "fault": "slow", "seconds": seconds}])
