"""What an installation sets, in words: the variables of `approvals.settings`, and the SQL that makes its two roles.

Read by the documentation and by `manage.py doctor`. Nothing is read from the environment here; a test holds
names and bounds against the settings file.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One variable. `low` and `high` are inclusive bounds, in `unit`; `default` is empty where there is none."""

    name: str
    what: str
    default: str = ""
    low: float | None = None
    high: float | None = None
    unit: str = ""
    needed: bool = False

    @property
    def bounds(self) -> str:
        """The bounds in words, or nothing."""
        if self.low is None or self.high is None:
            return ""
        return f"from {self.low:,} to {self.high:,} {self.unit}".strip()


@dataclass(frozen=True, kw_only=True)
class Group:
    """Variables that belong together."""

    title: str
    variables: tuple[Variable, ...]


GROUPS = (
    Group(
        title="Where things are",
        variables=(
            Variable(
                name="DATABASE_URL",
                needed=True,
                what="PostgreSQL as the application's role: postgresql://second_key_app:…@host:5432/second_key. "
                "Add ?sslmode=verify-full where the server is on another machine.",
            ),
            Variable(
                name="DATABASE_OWNER_URL",
                what="The same database as the role that owns the tables. Set it for `manage.py migrate` only; the "
                "processes that serve do without it.",
            ),
            Variable(
                name="REDIS_URL",
                default="redis://127.0.0.1:6379/0",
                what="Redis or Valkey, redis:// or rediss://. It only makes things quick: what it loses is found in "
                "PostgreSQL.",
            ),
            Variable(
                name="BASE_URL",
                default="http://localhost:8000",
                what="The address that people open. With https:// cookies become secure and HSTS is sent.",
            ),
            Variable(
                name="ALLOWED_HOSTS",
                default="the host of BASE_URL",
                what="Host names that are answered, separated by commas.",
            ),
        ),
    ),
    Group(
        title="Secrets",
        variables=(
            Variable(
                name="SECRET_KEY",
                needed=True,
                what="Signs sessions and forms: 50 random characters, the same for every process. A new one signs "
                "everybody out.",
            ),
            Variable(
                name="SECOND_KEY_ENCRYPTION_KEYS",
                needed=True,
                what="Fernet keys that the providers' secrets are encrypted with, separated by commas, the newest "
                "first. Keep an old key until nothing is encrypted with it, and keep them apart from the database's "
                "backups.",
            ),
        ),
    ),
    Group(
        title="The web",
        variables=(
            Variable(
                name="BEHIND_TLS_PROXY",
                default="0",
                what="1 where a proxy ends TLS and sets X-Forwarded-Proto itself, whatever a client sent.",
            ),
            Variable(
                name="SECURE_SSL_REDIRECT",
                default="1",
                what="With an https BASE_URL: whether plain http is redirected to it.",
            ),
            Variable(
                name="SECURE_HSTS_SECONDS",
                default="31536000 with https, else 0",
                low=0,
                high=63_072_000,
                unit="seconds",
                what="How long browsers insist on https.",
            ),
            Variable(
                name="IDEMPOTENCY_RETENTION_HOURS",
                default="24",
                low=0.01,
                high=9600,
                unit="hours",
                what="How long an idempotency key is remembered. The operation behind it is known for ever.",
            ),
            Variable(
                name="API_RATE_PER_MINUTE",
                default="30000",
                low=1,
                high=10_000_000,
                unit="requests",
                what="How often one agent may ask one web process in a minute; more is refused with 429.",
            ),
            Variable(
                name="WEB_THREADS",
                default="8",
                low=1,
                high=64,
                unit="threads",
                what="How many requests one web process answers at once; each thread keeps a database connection. "
                "Agents that wait take none.",
            ),
            Variable(name="LOG_LEVEL", default="INFO", what="DEBUG, INFO, WARNING or ERROR."),
            Variable(
                name="DEBUG", default="0", what="1 shows error details to whoever looks. Only for developing."
            ),
        ),
    ),
    Group(
        title="The ledger",
        variables=(
            Variable(
                name="LEDGER_DEADLINE_SECONDS",
                default="20",
                low=0.2,
                high=300,
                unit="seconds",
                what="The longest that one call to a provider takes in all; what is open then is unknown.",
            ),
            Variable(
                name="LEDGER_LEASE_SECONDS",
                default="the deadline and 10",
                low=0.5,
                high=900,
                unit="seconds",
                what="How long a worker owns an operation. Exceeds the deadline by a fifth or more.",
            ),
            Variable(
                name="LEDGER_RELAY_SECONDS",
                default="1",
                low=0.05,
                high=60,
                unit="seconds",
                what="How often beat looks for steps that are due.",
            ),
            Variable(
                name="LEDGER_REPUBLISH_SECONDS",
                default="5",
                low=0.1,
                high=600,
                unit="seconds",
                what="After how long a step that nobody took is published again; longer each time.",
            ),
            Variable(
                name="LEDGER_OBSERVATION_MAX_AGE_SECONDS",
                default="30",
                low=0.1,
                high=3600,
                unit="seconds",
                what="How old the provider's record may be when a refund is sent.",
            ),
            Variable(
                name="LEDGER_BACKOFF_SECONDS",
                default="2",
                low=0.05,
                high=600,
                unit="seconds",
                what="The first pause after a provider could not be reached; it doubles.",
            ),
            Variable(
                name="CELERY_VISIBILITY_TIMEOUT",
                default="600",
                low=1,
                high=86_400,
                unit="seconds",
                what="After how long the broker delivers an unacknowledged message again. A second delivery does no "
                "harm.",
            ),
        ),
    ),
)

VARIABLES = tuple(variable for group in GROUPS for variable in group.variables)
NEEDED = tuple(variable for variable in VARIABLES if variable.needed)

ROLES_SQL = """\
CREATE ROLE second_key_owner LOGIN PASSWORD '…' NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
CREATE ROLE second_key_app   LOGIN PASSWORD '…' NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
CREATE DATABASE second_key OWNER second_key_owner TEMPLATE template0 ENCODING 'UTF8';
\\connect second_key
REVOKE ALL ON DATABASE second_key FROM PUBLIC;
GRANT CONNECT ON DATABASE second_key TO second_key_app;
ALTER SCHEMA public OWNER TO second_key_owner;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO second_key_app;
"""
