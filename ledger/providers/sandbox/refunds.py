"""Refunds: create, retrieve, list (https://docs.stripe.com/api/refunds). The one room that decides what may
be refunded. No idempotency and no faults: those lie around these functions.
"""

from .currencies import MAX_AMOUNT, check_amount, shown
from .errors import ApiError, JsonObject, Reply, missing
from .idempotency import Execute
from .lists import Query, as_list, check_expand, expand_object, fetch_page, read_page
from .objects import Payment, new_id, refund_object
from .params import Reader
from .store import Books

REASONS = frozenset({"duplicate", "fraudulent", "requested_by_customer"})


def plan_create(account: str, reader: Reader, *, hide: float = 0) -> Execute:
    """`POST /v1/refunds`. `amount` absent means all that is left; hidden from lists for `hide` seconds."""
    charge, intent = reader.text("charge"), reader.text("payment_intent")
    if charge is None and intent is None:
        raise ApiError(
            400,
            "One of the following params should be provided for this request: payment_intent or charge.",
            code="parameter_missing",
        )
    amount = reader.integer("amount", least=1, most=MAX_AMOUNT)
    reason, metadata = reader.choice("reason", REASONS), reader.metadata()
    expand = check_expand("refund", reader.strings("expand"))
    reader.done()

    def execute(books: Books) -> Reply:
        payment = _payment(books, account, charge, intent)
        final = _refundable(payment, amount)
        refund_id = new_id("re")
        books.add(
            "refunds",
            {
                "id": refund_id,
                "account": account,
                "payment": payment.id,
                "charge": payment.charge,
                "amount": final,
                "currency": payment.currency,
                "status": "succeeded",
                "reason": reason,
                "metadata": metadata,
                "created": books.now,
                "hidden_until": books.now + hide,
            },
        )
        books.settle(payment.id)
        refund = books.refund(account, refund_id)
        assert refund is not None
        found = refund_object(refund)
        for path in expand:
            expand_object(books, account, found, path)
        return Reply.json(200, found)

    return execute


def _payment(books: Books, account: str, charge: str | None, intent: str | None) -> Payment:
    """The payment that is meant, or ApiError where it is unknown or never succeeded."""
    if charge is not None:
        payment = books.payment(account, charge)
        if payment is None or payment.charge != charge:
            raise missing("charge", charge, "charge")
        if intent is not None and payment.id != intent:
            raise ApiError(400, "The charge does not belong to the payment intent.", param="payment_intent")
        if not payment.succeeded:
            raise ApiError(400, f"Charge {charge} has not succeeded; it cannot be refunded.", param="charge")
        return payment
    assert intent is not None
    payment = books.payment(account, intent)
    if payment is None or payment.id != intent:
        raise missing("payment_intent", intent, "payment_intent")
    if not payment.succeeded:
        raise ApiError(
            400,
            f"This PaymentIntent ({intent}) does not have a successful charge to refund.",
            param="payment_intent",
        )
    return payment


def _refundable(payment: Payment, amount: int | None) -> int:
    """The amount to refund in minor units, or Stripe's refusal."""
    left = payment.amount - payment.refunded
    if payment.disputed:
        raise ApiError(
            400,
            f"Charge {payment.charge} has been charged back; cannot issue a refund.",
            code="charge_disputed",
        )
    if left <= 0:
        raise ApiError(
            400, f"Charge {payment.charge} has already been refunded.", code="charge_already_refunded"
        )
    if amount is None:
        return left
    check_amount(amount, payment.currency)
    if amount > left:
        word = "unrefunded amount on charge" if payment.refunded else "charge amount"
        raise ApiError(
            400,
            f"Refund amount ({shown(amount, payment.currency)}) is greater than {word} "
            f"({shown(left, payment.currency)})",
            param="amount",
        )
    return amount


def retrieve(books: Books, account: str, reader: Reader, id: str) -> JsonObject:  # noqa: A002
    """`GET /v1/refunds/{id}`"""
    expand = check_expand("refund", reader.strings("expand"))
    reader.done()
    refund = books.refund(account, id)
    if refund is None:
        raise missing("refund", id)
    found = refund_object(refund)
    for path in expand:
        expand_object(books, account, found, path)
    return found


def list_refunds(books: Books, account: str, reader: Reader, *, hide: float | None) -> JsonObject:
    """`GET /v1/refunds`. With `hide`, refunds younger than so many seconds are left out."""
    page = read_page(reader)
    charge, intent = reader.text("charge"), reader.text("payment_intent")
    reader.done()
    query = Query(account)
    query.where("hidden_until <= ?", books.now)
    if charge is not None:
        query.where("charge = ?", charge)
    if intent is not None:
        query.where("payment = ?", intent)
    if hide is not None:
        query.where("created <= ?", books.now - hide)
    rows, has_more = fetch_page(
        page, query, books.refunds, lambda cursor: books.refund(account, cursor), "refund"
    )
    data = [refund_object(row) for row in rows]
    return as_list(books, account, "refund", data, has_more=has_more, expand=page.expand)
