"""Passwords and keys of the local run, and the file other commands read the addresses from.

Made once, kept in files only the starter can read. Nothing here is a default: no secret is ever fixed.
"""

import base64
import json
import os
import secrets
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from approvals.embedded.errors import EmbeddedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    superuser_password: str = field(repr=False)
    owner_password: str = field(repr=False)
    app_password: str = field(repr=False)
    broker_password: str = field(repr=False)
    secret_key: str = field(repr=False)
    encryption_key: str = field(repr=False)  # a Fernet key: 32 bytes, URL-safe base64


def generate() -> Keys:
    return Keys(
        superuser_password=secrets.token_urlsafe(32),
        owner_password=secrets.token_urlsafe(32),
        app_password=secrets.token_urlsafe(32),
        broker_password=secrets.token_urlsafe(32),
        secret_key=secrets.token_urlsafe(50),
        encryption_key=base64.urlsafe_b64encode(os.urandom(32)).decode(),
    )


def load_or_generate(path: Path) -> Keys:
    """The keys of this place, made at the first call. EmbeddedError if the file cannot be understood."""
    if not path.exists():
        write_private(path, json.dumps(asdict(generate()), indent=1) + "\n")
    try:
        content = json.loads(path.read_text())
        return Keys(**{item.name: str(content[item.name]) for item in fields(Keys)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EmbeddedError(
            f"The passwords of the local servers cannot be read from {path} ({error!r}). Put the file "
            f"back, or move {path.parent} away to begin anew."
        ) from error


def write_environment(path: Path, values: dict[str, str]) -> None:
    lines = [f"{name}={value}\n" for name, value in sorted(values.items())]
    write_private(path, "# Written at every start of the local servers.\n" + "".join(lines))


def local_environment(root: Path) -> dict[str, str] | None:
    """What the last start in the checkout `root` wrote, or None if there was none that we may read.

    The servers behind the addresses may have been stopped since.
    """
    try:
        text = (root / ".local" / "environment").read_text()
    except OSError:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def write_private(path: Path, text: str) -> None:
    """Replace the file as a whole, readable by us alone from its first byte on."""
    half = path.with_name(path.name + ".half")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
