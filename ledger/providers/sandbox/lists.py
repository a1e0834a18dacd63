"""Stripe's cursor pages and `expand`, the same for every object. Reads in a transaction, never writes."""

from collections.abc import Callable
from dataclasses import dataclass

from .errors import ApiError, JsonObject, missing
from .objects import Payment, Refund, charge_object, list_object, payment_intent_object
from .params import Reader, to_integer
from .store import Books

type Expander = Callable[[Books, str, str], JsonObject | None]

COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
FAR_FUTURE = 10**12


@dataclass(frozen=True, kw_only=True)
class Page:
    """Which part of a list is asked for. `created` are comparisons, `(">=", 1700000000)`."""

    limit: int
    starting_after: str | None
    ending_before: str | None
    created: tuple[tuple[str, int], ...]
    expand: tuple[str, ...]


def read_page(reader: Reader) -> Page:
    """The paging parameters: `limit` 1 to 100, 10 where absent; one cursor at most."""
    starting_after, ending_before = reader.text("starting_after"), reader.text("ending_before")
    if starting_after and ending_before:
        raise ApiError(400, "You cannot use starting_after and ending_before together", param="ending_before")
    return Page(
        limit=reader.integer("limit", least=1, most=100) or 10,
        starting_after=starting_after,
        ending_before=ending_before,
        created=read_created(reader),
        expand=tuple(reader.strings("expand")),
    )


def read_created(reader: Reader) -> tuple[tuple[str, int], ...]:
    """`created[gte]=N` and the like, in Unix seconds. Stripe's exact `created=N` is refused, not ignored."""
    found: list[tuple[str, int]] = []
    for name, value in reader.mapping("created").items():
        if name not in COMPARISONS:
            raise ApiError(
                400, f"Received unknown parameter: created[{name}]", code="parameter_unknown", param="created"
            )
        found.append((COMPARISONS[name], to_integer(value, f"created[{name}]", least=0, most=FAR_FUTURE)))
    return tuple(found)


class Query:
    """A WHERE clause put together from fixed texts; only values come from outside."""

    def __init__(self, account: str) -> None:
        self.clauses = ["account = ?"]
        self.values: list[object] = [account]

    def where(self, clause: str, *values: object) -> None:
        """One more condition."""
        self.clauses.append(clause)
        self.values.extend(values)


def fetch_page[Row: (Payment, Refund)](
    page: Page,
    query: Query,
    fetch: Callable[[str, list[object], str], list[Row]],
    find: Callable[[str], Row | None],
    what: str,
) -> tuple[list[Row], bool]:
    """One page, newest first, and whether there is more in the direction of travel.

    Raises ApiError (400) for a cursor that names no object of this account.
    """
    for comparison, moment in page.created:
        query.where(f"CAST(created AS INTEGER) {comparison} ?", moment)
    order = "DESC"
    for param, cursor, comparison in (
        ("starting_after", page.starting_after, "<"),
        ("ending_before", page.ending_before, ">"),
    ):
        if cursor is not None:
            row = find(cursor)
            if row is None:
                raise missing(what, cursor, param, status=400)
            query.where(f"seq {comparison} ?", row.seq)
            order = "ASC" if comparison == ">" else "DESC"
    tail = f"ORDER BY seq {order} LIMIT {page.limit + 1}"
    rows = fetch(" AND ".join(query.clauses), query.values, tail)
    has_more = len(rows) > page.limit
    rows = rows[: page.limit]
    return (rows[::-1] if order == "ASC" else rows), has_more


def as_list(
    books: Books, account: str, kind: str, data: list[JsonObject], *, has_more: bool, expand: tuple[str, ...]
) -> JsonObject:
    """The list object of objects of `kind`, with its `data.…` expansions."""
    for path in expand:
        head, _, tail = path.partition(".")
        if head != "data":
            raise not_expandable(path)
        check_expand(kind, [tail])
        for found in data:
            expand_object(books, account, found, tail)
    return list_object(f"/v1/{kind}s", data, has_more=has_more)


def check_expand(kind: str, paths: list[str]) -> list[str]:
    """Raises ApiError (400) for a path that an object of `kind` cannot expand; before anything is done."""
    for path in paths:
        if path.count(".") > 3:
            raise ApiError(400, "You cannot expand more than 4 levels of a property", param="expand")
        here = kind
        for step in path.split("."):
            if (here, step) not in EXPANDABLE:
                raise not_expandable(path)
            here, _load = EXPANDABLE[here, step]
    return paths


def expand_object(books: Books, account: str, found: JsonObject, path: str) -> None:
    """Replace the ids on a checked `path` (e.g. `charge.payment_intent`) by their objects, in place."""
    head, _, tail = path.partition(".")
    _kind, load = EXPANDABLE[str(found["object"]), head]
    value = found[head]
    if isinstance(value, str):
        value = found[head] = load(books, account, value)
    if tail and isinstance(value, dict):
        expand_object(books, account, value, tail)


def not_expandable(path: str) -> ApiError:
    """Stripe's 400 for a property that is not an id of another object."""
    return ApiError(400, f"This property cannot be expanded ({path}).", param="expand")


def _load_charge(books: Books, account: str, id: str) -> JsonObject | None:  # noqa: A002
    payment = books.payment(account, id)
    return None if payment is None else charge_object(payment)


def _load_payment_intent(books: Books, account: str, id: str) -> JsonObject | None:  # noqa: A002
    payment = books.payment(account, id)
    return None if payment is None else payment_intent_object(payment)


EXPANDABLE: dict[tuple[str, str], tuple[str, Expander]] = {
    ("payment_intent", "latest_charge"): ("charge", _load_charge),
    ("charge", "payment_intent"): ("payment_intent", _load_payment_intent),
    ("refund", "charge"): ("charge", _load_charge),
    ("refund", "payment_intent"): ("payment_intent", _load_payment_intent),
}
