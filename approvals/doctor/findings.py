"""What an examination finds: a check, how it stands, and what to mend. Values only; nothing is examined here."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check stands."""

    OK = "ok"
    WARN = "warn"  # works, but somebody should look
    FAIL = "fail"  # does not work, or is not safe


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check. `said` is one sentence or two; `mend` says what to do, and is empty where all is well."""

    check: str
    level: Level
    said: str
    mend: str = ""

    def as_json(self) -> dict[str, str]:
        """For programs."""
        return {"check": self.check, "level": str(self.level), "said": self.said, "mend": self.mend}


def ok(check: str, said: str) -> Finding:
    """All is well."""
    return Finding(check=check, level=Level.OK, said=said)


def warn(check: str, said: str, mend: str) -> Finding:
    """Somebody should look."""
    return Finding(check=check, level=Level.WARN, said=said, mend=mend)


def fail(check: str, said: str, mend: str) -> Finding:
    """This has to be mended."""
    return Finding(check=check, level=Level.FAIL, said=said, mend=mend)


def some(names: list[str], most: int = 5) -> str:
    """A list in words, cut where it grows long, with how many were left out."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")
