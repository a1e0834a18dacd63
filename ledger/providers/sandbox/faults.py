"""Faults that are armed and taken, one by one, in order. Pure memory: what a fault does is done elsewhere.

Armed faults do not survive a restart; what they did does.

A request takes at most two: the first armed that shapes its *answer* (all but one), and the first armed that
shapes what is *seen* of it (`hide_from_list`). So a lost acknowledgement and a lagging list can be armed for
the same refund, in either order.
"""

import threading
from dataclasses import asdict, dataclass
from enum import StrEnum

from .errors import ApiError, Json, JsonObject

OPERATIONS = ("refund.create", "refund.list", "refund.retrieve", "payment.retrieve")
MAX_SECONDS = 30 * 24 * 3600.0
MEMBERS = frozenset({"on", "times", "fault", "seconds", "code", "payment"})


class Kind(StrEnum):
    """What goes wrong."""

    LOSE_ACK = "lose_ack"  # done, then the connection is closed without an answer
    ERROR_AFTER = "error_after"  # done, answered 500, and the 500 is what the key replays
    ERROR_BEFORE = "error_before"  # 503, not done, nothing saved
    DELAY_COMMIT = (
        "delay_commit"  # no answer ever; the effect lands `seconds` later, its key in use meanwhile
    )
    DUPLICATE_DELIVERY = "duplicate_delivery"  # passes through the key layer twice; the second answer is sent
    HIDE_FROM_LIST = (
        "hide_from_list"  # on refund.create: this refund; on refund.list: refunds younger than that
    )
    SLOW = "slow"  # done at once, answered `seconds` later, its key in use meanwhile
    DRIP = "drip"  # a valid answer, byte by byte over `seconds`
    TRUNCATE = "truncate"  # done; half the body of the announced length, then closed
    REFUSE = "refuse"  # not done; a definite refusal with `code`, saved under the key as any other


TIMED = frozenset({Kind.DELAY_COMMIT, Kind.HIDE_FROM_LIST, Kind.SLOW, Kind.DRIP})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One armed fault. `seconds` and `code` where its kind asks for them; `payment` narrows it to one."""

    on: str
    fault: Kind
    seconds: float = 0.0
    code: str = ""
    payment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What one request got."""

    answer: Fault | None = None
    hide: float | None = None
    """Seconds, from `hide_from_list`."""

    @property
    def kind(self) -> Kind | None:
        """The kind of the fault that shapes the answer."""
        return None if self.answer is None else self.answer.fault

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return "" if self.answer is None else self.answer.code

    @property
    def seconds(self) -> float:
        """The seconds of the fault that shapes the answer."""
        return 0.0 if self.answer is None else self.answer.seconds


def parse(value: Json) -> list[tuple[Fault, int]]:
    """Faults with their times, or ApiError (400) naming what is wrong; then nothing may be armed."""
    if not isinstance(value, list):
        raise ApiError(400, "Faults are a JSON list of objects; an empty list disarms all.")
    return [_parse_one(index, item) for index, item in enumerate(value)]


def _parse_one(index: int, item: Json) -> tuple[Fault, int]:
    if not isinstance(item, dict):
        raise ApiError(400, f"Fault {index} is not an object.")
    unknown = sorted(set(item) - MEMBERS)
    if unknown:
        raise ApiError(400, f"Fault {index} has unknown members: {', '.join(unknown)}.")
    on, name, times = item.get("on"), item.get("fault"), item.get("times", 1)
    if on not in OPERATIONS:
        raise ApiError(400, f"Fault {index}: 'on' must be one of {', '.join(OPERATIONS)}.")
    if name not in list(Kind):
        raise ApiError(400, f"Fault {index}: 'fault' must be one of {', '.join(Kind)}.")
    kind = Kind(str(name))
    if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times <= 1_000_000:
        raise ApiError(400, f"Fault {index}: 'times' must be a positive whole number.")
    if kind is Kind.HIDE_FROM_LIST and on not in {"refund.create", "refund.list"}:
        raise ApiError(400, f"Fault {index}: hide_from_list is armed on refund.create or refund.list.")
    code, payment = item.get("code"), item.get("payment")
    if kind is Kind.REFUSE and not (isinstance(code, str) and code):
        raise ApiError(400, f"Fault {index}: 'refuse' needs a 'code'.")
    if payment is not None and not isinstance(payment, str):
        raise ApiError(400, f"Fault {index}: 'payment' must be an id.")
    fault = Fault(
        on=str(on),
        fault=kind,
        seconds=_seconds(index, kind, item.get("seconds")),
        code=code if isinstance(code, str) else "",
        payment=payment,
    )
    return fault, times


def _seconds(index: int, kind: Kind, value: Json) -> float:
    if kind not in TIMED and value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ApiError(400, f"Fault {index}: '{kind}' needs 'seconds', a number from 0.")
    return float(value)


class Armed:
    """The faults that wait for their requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[tuple[Fault, int]] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def arm(self, faults: list[tuple[Fault, int]]) -> None:
        """Add to what is armed; an empty list disarms all."""
        with self._lock:
            self._faults = [*self._faults, *faults] if faults else []

    def take(self, operation: str, payment: str | None) -> Taken:
        """What the next request of `operation` on `payment` gets; each fault taken counts one down."""
        with self._lock:
            answer = self._take_first(operation, payment, hiding=False)
            hide = self._take_first(operation, payment, hiding=True)
        return Taken(answer=answer, hide=None if hide is None else hide.seconds)

    def _take_first(self, operation: str, payment: str | None, *, hiding: bool) -> Fault | None:
        for index, (fault, times) in enumerate(self._faults):
            if fault.on != operation or (fault.fault is Kind.HIDE_FROM_LIST) is not hiding:
                continue
            if fault.payment is not None and fault.payment != payment:
                continue
            self._faults[index : index + 1] = [(fault, times - 1)] if times > 1 else []
            return fault
        return None

    def listed(self) -> list[JsonObject]:
        """What is armed now, in the shape in which it was posted."""
        with self._lock:
            return [{**asdict(fault), "times": times} for fault, times in self._faults]
