"""`Prefer: wait=N` (RFC 7240). What cannot be read is ignored, as that document says. Pure."""

import re

WAIT = re.compile(r'wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")', re.ASCII | re.IGNORECASE)


def preferred_wait(header: str) -> int | None:
    """Seconds of the first `wait` preference, or None."""
    for preference in header.split(","):
        found = WAIT.fullmatch(preference.partition(";")[0].strip())
        if found:
            return int(found.group(1) or found.group(2))
    return None
