"""What can be said without PostgreSQL: Python, settings, encryption keys, the broker."""

import ipaddress
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

from approvals.doctor.findings import Finding, fail, ok, warn
from ledger import accounts
from ledger.accounts import SecretUnreadableError

PYTHON = (3, 12)
SECRET_KEY_LENGTH = 50
BROKER_SECONDS = 0.5
NEW_KEY = 'python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"'
NEW_SIGNING_KEY = 'python -c "import secrets; print(secrets.token_urlsafe(50))"'


def python_version(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python is new enough."""
    said = f"Python {'.'.join(map(str, version))}"
    if version[:2] < PYTHON:
        return fail("python", said, "Install Python 3.12 or newer and make .venv anew.")
    return ok("python", said)


def settings_findings() -> Iterator[Finding]:
    """What is set, as far as it can be wrong without stopping the start."""
    yield debug()
    yield secret_key()
    yield address()
    yield time_zone()


def debug() -> Finding:
    """DEBUG is off."""
    if settings.DEBUG:
        return warn("debug", "DEBUG is on: error pages show settings and data.", "Unset DEBUG.")
    return ok("debug", "DEBUG is off")


def secret_key() -> Finding:
    """SECRET_KEY cannot be guessed."""
    length = len(settings.SECRET_KEY)
    if length < SECRET_KEY_LENGTH or len(set(settings.SECRET_KEY)) < 5:
        mend = f"Set SECRET_KEY to what `{NEW_SIGNING_KEY}` prints, the same for every process."
        return warn("secret key", f"SECRET_KEY has {length} characters, and that is little.", mend)
    return ok("secret key", "SECRET_KEY is long enough")


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def address() -> Finding:
    """People reach it over https, under a name that it answers to."""
    host = urlsplit(settings.BASE_URL).hostname or ""
    allowed = settings.ALLOWED_HOSTS
    if "*" in allowed:
        return warn("address", "ALLOWED_HOSTS answers to every name.", "Name the hosts that people open.")
    if not any(host == name or (name.startswith(".") and f".{host}".endswith(name)) for name in allowed):
        mend = f"Add {host} to ALLOWED_HOSTS, or correct BASE_URL."
        return fail("address", f"BASE_URL names {host}, which ALLOWED_HOSTS does not hold.", mend)
    if not settings.HTTPS and not is_loopback(host):
        mend = "Put TLS in front and set BASE_URL to the https:// address."
        return warn(
            "address", f"{settings.BASE_URL} is plain http: passwords and tokens travel readable.", mend
        )
    return ok("address", f"People open {settings.BASE_URL}")


def time_zone() -> Finding:
    """The program itself thinks in UTC (K67)."""
    if settings.TIME_ZONE != "UTC" or not settings.USE_TZ:
        return fail(
            "time zone", f"TIME_ZONE is {settings.TIME_ZONE}.", "Put TIME_ZONE back to UTC in settings.py."
        )
    return ok("time zone", "UTC")


def encryption_keys() -> Finding:
    """There are keys, and they work."""
    mend = (
        f"Set SECOND_KEY_ENCRYPTION_KEYS to what `{NEW_KEY}` prints; keep the keys that were there after it."
    )
    try:
        works = accounts.decrypt(accounts.encrypt("probe")) == "probe"
    except SecretUnreadableError as error:
        return fail("encryption keys", str(error), mend)
    if not works:
        return fail("encryption keys", "What was encrypted cannot be decrypted.", mend)
    count = len(settings.ENCRYPTION_KEYS)
    return ok("encryption keys", f"{count} {'key' if count == 1 else 'keys'}, the newest encrypts")


def broker() -> Iterator[Finding]:
    """Redis answers soon, and does not throw messages away."""
    client: Any = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=BROKER_SECONDS,
        socket_timeout=BROKER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        info = client.info()
    except (redis.RedisError, OSError) as error:
        mend = (
            "Start Redis or Valkey, or correct REDIS_URL. Until then nothing is carried out; what was decided waits "
            "in PostgreSQL and is not lost."
        )
        yield fail("broker", f"The broker does not answer within {BROKER_SECONDS:g} s: {error}", mend)
        return
    finally:
        client.close()
    valkey = info.get("valkey_version")
    yield ok(
        "broker", f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'of unknown version')}"
    )
    policy = info.get("maxmemory_policy", "unknown")
    if policy != "noeviction":
        mend = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file."
        yield warn("broker memory", f"maxmemory-policy is {policy}: a full broker may drop messages.", mend)
    else:
        yield ok("broker memory", "maxmemory-policy is noeviction")
