"""Payment intents and their charges: create (to have something to refund), retrieve, list.

One payment has at most one charge here. No idempotency and no faults: those lie around these functions.
"""

from dataclasses import dataclass

from .currencies import MAX_AMOUNT, check_amount, check_currency
from .errors import ApiError, JsonObject, Reply, missing
from .idempotency import Execute
from .lists import Query, as_list, check_expand, expand_object, fetch_page, read_page
from .objects import Payment, charge_object, new_id, payment_intent_object
from .params import Reader
from .store import Books


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """A test card and what happens to it (https://docs.stripe.com/testing)."""

    brand: str
    last4: str
    declined: bool = False
    disputed: bool = False


INSTRUMENTS = {
    "visa": Instrument(brand="visa", last4="4242"),
    "mastercard": Instrument(brand="mastercard", last4="4444"),
    "amex": Instrument(brand="amex", last4="8431"),
    "chargeDeclined": Instrument(brand="visa", last4="0002", declined=True),
    "createDispute": Instrument(brand="visa", last4="0259", disputed=True),
}


def insert_payment(
    books: Books,
    *,
    account: str,
    amount: int,
    currency: str,
    instrument: Instrument | None,
    name: str = "",
    description: str | None = None,
    metadata: dict[str, str] | None = None,
    age: float = 0,
) -> Payment:
    """A payment that was tried with `instrument`, or is still without one; created `age` seconds ago."""
    status = "requires_payment_method"
    if instrument is not None and not instrument.declined:
        status = "succeeded"
    payment_id = new_id("pi")
    books.add(
        "payments",
        {
            "id": payment_id,
            "account": account,
            "charge": new_id("ch") if instrument is not None else None,
            "amount": amount,
            "currency": currency,
            "status": status,
            "disputed": int(instrument is not None and instrument.disputed),
            "name": name,
            "brand": instrument.brand if instrument is not None else "",
            "last4": instrument.last4 if instrument is not None else "",
            "description": description,
            "failure": "card_declined" if instrument is not None and instrument.declined else None,
            "metadata": metadata or {},
            "created": books.now - age,
        },
    )
    payment = books.payment(account, payment_id)
    assert payment is not None
    return payment


def read_instrument(reader: Reader) -> tuple[Instrument | None, str]:
    """The test instrument (`pm_card_visa`, or `tok_visa` in payment_method_data) and the payer's name."""
    name, token = "", reader.text("payment_method")
    data = Reader(reader.mapping("payment_method_data"))
    data.ignore("type")
    details, card = Reader(data.mapping("billing_details")), Reader(data.mapping("card"))
    data.done()
    name = details.text("name") or ""
    details.ignore("email", "phone", "address")
    details.done()
    token = token or card.text("token")
    card.done()
    if token is None:
        return None, name
    known = INSTRUMENTS.get(token.removeprefix("pm_card_").removeprefix("tok_"))
    if known is None or not token.startswith(("pm_card_", "tok_")):
        raise missing("PaymentMethod", token, "payment_method", status=400)
    return known, name


def plan_create(account: str, reader: Reader) -> Execute:
    """`POST /v1/payment_intents`: with `confirm=true` and a test instrument it gets its charge at once."""
    amount = reader.integer("amount", least=1, most=MAX_AMOUNT)
    if amount is None:
        raise ApiError(400, "Missing required param: amount.", code="parameter_missing", param="amount")
    currency = check_currency(reader.required("currency"))
    check_amount(amount, currency)
    confirm = reader.flag("confirm")
    instrument, name = read_instrument(reader)
    description, metadata = reader.text("description"), reader.metadata()
    expand = check_expand("payment_intent", reader.strings("expand"))
    reader.ignore("payment_method_types", "automatic_payment_methods", "return_url", "off_session")
    reader.done()
    if confirm and instrument is None:
        raise ApiError(
            400,
            "You cannot confirm this PaymentIntent because it's missing a payment method.",
            code="payment_intent_unexpected_state",
        )

    def execute(books: Books) -> Reply:
        payment = insert_payment(
            books,
            account=account,
            amount=amount,
            currency=currency,
            instrument=instrument if confirm else None,
            name=name,
            description=description,
            metadata=metadata,
        )
        found = payment_intent_object(payment)
        if payment.failure:
            error: JsonObject = {"type": "card_error", "code": payment.failure, "payment_intent": found}
            return Reply.json(402, {"error": {**error, "message": "Your card was declined."}})
        for path in expand:
            expand_object(books, account, found, path)
        return Reply.json(200, found)

    return execute


def retrieve_payment_intent(books: Books, account: str, reader: Reader, id: str) -> JsonObject:  # noqa: A002
    """`GET /v1/payment_intents/{id}`"""
    expand = check_expand("payment_intent", reader.strings("expand"))
    reader.ignore("client_secret")
    reader.done()
    payment = books.payment(account, id)
    if payment is None or payment.id != id:
        raise missing("payment_intent", id, "intent")
    found = payment_intent_object(payment)
    for path in expand:
        expand_object(books, account, found, path)
    return found


def retrieve_charge(books: Books, account: str, reader: Reader, id: str) -> JsonObject:  # noqa: A002
    """`GET /v1/charges/{id}`"""
    expand = check_expand("charge", reader.strings("expand"))
    reader.done()
    payment = books.payment(account, id)
    if payment is None or payment.charge != id:
        raise missing("charge", id)
    found = charge_object(payment)
    for path in expand:
        expand_object(books, account, found, path)
    return found


def list_payment_intents(books: Books, account: str, reader: Reader, _id: str) -> JsonObject:
    """`GET /v1/payment_intents`"""
    page = read_page(reader)
    reader.done()
    rows, has_more = fetch_page(
        page, Query(account), books.payments, lambda cursor: books.payment(account, cursor), "payment_intent"
    )
    data = [payment_intent_object(row) for row in rows]
    return as_list(books, account, "payment_intent", data, has_more=has_more, expand=page.expand)


def list_charges(books: Books, account: str, reader: Reader, _id: str) -> JsonObject:
    """`GET /v1/charges`, of one payment intent where it is named."""
    page, intent = read_page(reader), reader.text("payment_intent")
    reader.done()
    query = Query(account)
    query.where("charge IS NOT NULL")
    if intent is not None:
        query.where("id = ?", intent)
    rows, has_more = fetch_page(
        page, query, books.payments, lambda cursor: books.payment(account, cursor), "charge"
    )
    data = [charge_object(row) for row in rows]
    return as_list(books, account, "charge", data, has_more=has_more, expand=page.expand)
