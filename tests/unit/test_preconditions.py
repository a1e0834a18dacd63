"""What a payment must still allow: by table, and by property against a truthful provider."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.preconditions import check_refund, refundable
from ledger.providers.base import KnownRefund, PaymentRecord


def record(
    amount: int = 10_000, refunded: int = 0, refunds: tuple[KnownRefund, ...] = (), **more: Any
) -> PaymentRecord:
    values = {"id": "pi_1", "currency": "usd", "status": "succeeded"} | more
    return PaymentRecord(amount=amount, refunded=refunded, refunds=refunds, **values)


def known(amount: int, key: str | None = None, status: str = "succeeded") -> KnownRefund:
    return KnownRefund(id=f"re_{key}", amount=amount, status=status, operation_key=key)


@pytest.mark.parametrize(
    ("given_", "amount", "reason"),
    [
        (record(missing=True), 1, "payment_missing"),
        (record(currency="inr"), 1, "currency_mismatch"),  # K60
        (record(status="requires_capture"), 1, "payment_not_succeeded"),
        (record(disputed=True), 1, "payment_disputed"),
        (record(), 10_001, "amount_exceeds_refundable"),
        (record(refunded=6_000, refunds=(known(6_000),)), 4_001, "amount_exceeds_refundable"),
        (record(), 10_000, None),
        (record(refunded=0, refunds=(known(6_000, status="failed"),)), 10_000, None),
    ],
)
def test_the_table(given_: PaymentRecord, amount: int, reason: str | None) -> None:
    shortfall = check_refund(given_, amount=amount, currency="usd")
    assert (shortfall.reason if shortfall else None) == reason
    assert shortfall is None or (shortfall.message and shortfall.now)


def test_sixty_reserved_of_a_hundred_leaves_forty() -> None:  # K61
    assert refundable(record(), amount=6_000, reserved={"other": 6_000}) == 4_000


def test_a_reserved_amount_that_the_provider_lists_counts_once() -> None:
    listed = record(refunded=6_000, refunds=(known(6_000, "other"),))
    assert refundable(listed, amount=4_000, reserved={"other": 6_000}) == 4_000


def test_a_reserved_amount_that_is_hidden_from_the_list_counts_once() -> None:
    assert refundable(record(refunded=6_000), amount=4_000, reserved={"other": 6_000}) == 4_000


def test_ones_own_landed_attempt_is_not_held_against_oneself() -> None:
    landed = record(refunded=10_000, refunds=(known(10_000, "mine"),))
    assert check_refund(landed, amount=10_000, currency="usd", own_key="mine", own_unresolved=True) is None
    assert (
        check_refund(
            record(refunded=10_000), amount=10_000, currency="usd", own_key="mine", own_unresolved=True
        )
        is None
    )
    assert (
        check_refund(landed, amount=10_000, currency="usd", own_key="mine", own_unresolved=False) is not None
    )


others = st.lists(
    st.tuples(st.integers(1, 5_000), st.booleans(), st.booleans()), max_size=5
)  # amount, has landed, is listed by the provider


@given(others, st.integers(1, 10_000))
def test_what_passes_never_exceeds_the_payment(rivals: list[tuple[int, bool, bool]], amount: int) -> None:
    """However our other operations stand, all of them landing and this one too stays within the payment."""
    landed = [(f"k{n}", value, listed) for n, (value, has_landed, listed) in enumerate(rivals) if has_landed]
    if sum(value for _, value, _ in landed) > 10_000:
        return
    shown = record(
        refunded=sum(value for _, value, _ in landed),
        refunds=tuple(known(value, key) for key, value, listed in landed if listed),
    )
    reserved = {f"k{n}": value for n, (value, _, _) in enumerate(rivals)}
    if check_refund(shown, amount=amount, currency="usd", own_key="mine", reserved=reserved) is None:
        assert amount + sum(reserved.values()) <= 10_000


def test_an_effect_that_our_books_do_not_know_is_never_sent_again() -> None:  # R-D8
    landed = record(refunded=1_000, refunds=(known(1_000, "mine"),))
    late = check_refund(landed, amount=1_000, currency="usd", own_key="mine", own_unresolved=False)
    assert late is not None
    assert late.reason == "already_refunded"
    assert check_refund(landed, amount=1_000, currency="usd", own_key="mine", own_unresolved=True) is None
    failed = record(refunds=(known(1_000, "mine", status="failed"),))
    assert check_refund(failed, amount=1_000, currency="usd", own_key="mine", own_unresolved=False) is None


def test_a_hidden_refund_is_either_ours_or_theirs() -> None:
    hidden = record(refunded=6_000)
    asked: dict[str, Any] = {"amount": 6_000, "own_key": "mine", "own_unresolved": True}
    assert refundable(hidden, **asked) == 10_000
    assert refundable(hidden, **asked, reserved={"other": 4_000}) == 6_000
    assert refundable(hidden, **asked, reserved={"other": 6_000}) == 4_000  # both cannot have been ours


def test_a_hidden_refund_smaller_than_ours_is_not_ours() -> None:
    asked: dict[str, Any] = {"amount": 6_000, "own_key": "mine", "own_unresolved": True}
    assert refundable(record(refunded=5_000), **asked) == 5_000


def test_ones_own_reservation_is_not_held_against_oneself() -> None:
    assert refundable(record(), amount=6_000, own_key="mine", reserved={"mine": 6_000}) == 10_000


@pytest.mark.parametrize("amount", [0, -1, True, 1.0, "1"])
def test_an_amount_is_a_positive_integer(amount: Any) -> None:
    shortfall = check_refund(record(), amount=amount, currency="usd")
    assert shortfall is not None
    assert shortfall.reason == "amount_invalid"


@given(others, st.integers(1, 10_000), st.sampled_from(["never", "hidden", "listed"]))
def test_a_second_attempt_never_exceeds_the_payment_either(
    rivals: list[tuple[int, bool, bool]], amount: int, own: str
) -> None:
    """An unresolved operation may go again only where everything fits, whether or not its first attempt landed."""
    landed = [(f"k{n}", value, listed) for n, (value, has_landed, listed) in enumerate(rivals) if has_landed]
    if own != "never":
        landed.append(("mine", amount, own == "listed"))
    if sum(value for _, value, _ in landed) > 10_000:
        return
    shown = record(
        refunded=sum(value for _, value, _ in landed),
        refunds=tuple(known(value, key) for key, value, listed in landed if listed),
    )
    reserved = {f"k{n}": value for n, (value, _, _) in enumerate(rivals)}
    passed = check_refund(
        shown, amount=amount, currency="usd", own_key="mine", own_unresolved=True, reserved=reserved
    )
    fits = amount + sum(reserved.values()) <= 10_000
    if own != "never" or all(listed for _, _, listed in landed):  # nothing of ours is mistaken for a rival's
        assert (passed is None) == fits
