"""The one settings file. Everything that differs between installations is read from the environment, strictly:
a value that makes no sense stops the start with a message that names the variable.

Nothing set at all means the embedded default: `manage.py demo` starts PostgreSQL and Valkey of its own and
leaves their addresses in `.local/environment`, which every other command then uses.
"""

import os
import secrets
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP

from approvals.embedded.keys import local_environment

BASE_DIR = Path(__file__).resolve().parent.parent

EMBEDDED = "DATABASE_URL" not in os.environ
if EMBEDDED:
    for name, value in (local_environment(BASE_DIR) or {}).items():
        os.environ.setdefault(name, value)


def env(name: str, default: str = "") -> str:
    """A text from the environment."""
    return os.environ.get(name, default).strip()


def env_bool(name: str, default: bool) -> bool:
    """A switch: 1/true/yes/on or 0/false/no/off; anything else stops the start."""
    raw = env(name).lower()
    if raw == "":
        return default
    if raw in {"1", "true", "yes", "on"}:
        return True
    if raw in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={raw!r}: write 1 or 0")


def env_number(name: str, default: float, *, low: float, high: float) -> float:
    """A number within bounds; anything else stops the start."""
    raw = env(name)
    try:
        number = float(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r}: write a number from {low:g} to {high:g}") from None
    if not low <= number <= high:
        raise ImproperlyConfigured(f"{name}={number:g}: must be from {low:g} to {high:g}")
    return number


def env_int(name: str, default: int, *, low: int, high: int) -> int:
    """A whole number within bounds; anything else stops the start."""
    number = env_number(name, default, low=low, high=high)
    if number != int(number):
        raise ImproperlyConfigured(f"{name}={number:g}: write a whole number")
    return int(number)


def env_list(name: str, default: str = "") -> list[str]:
    """A comma-separated list."""
    return [part.strip() for part in env(name, default).split(",") if part.strip()]


def database(url: str, variable: str) -> Any:
    """A database entry; PostgreSQL only, for row locks and row-level security do nothing elsewhere (K70)."""
    if urlsplit(url).scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(f"{variable} must be a postgresql:// address; nothing else locks rows")
    entry: dict[str, Any] = dict(dj_database_url.parse(url, conn_max_age=600, conn_health_checks=True))
    options = entry.setdefault("OPTIONS", {})
    options.setdefault("connect_timeout", 5)
    options.setdefault("application_name", "second-key")
    # A lock that cannot be had, or a session left open, ends by itself; both only ever mean that something died.
    options.setdefault(
        "options", "-c lock_timeout=10s -c idle_in_transaction_session_timeout=30s -c timezone=UTC"
    )
    return entry


CONFIGURED = "DATABASE_URL" in os.environ
DEBUG = env_bool("DEBUG", False)
SECRET_KEY = env("SECRET_KEY")
if not SECRET_KEY:
    if CONFIGURED:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set: give the program 50 random characters, and keep them"
        )
    SECRET_KEY = secrets.token_urlsafe(50)  # nothing is configured: enough for --help and for checks

# --- where it is reached ------------------------------------------------------------------------------------
BASE_URL = env("BASE_URL", "http://localhost:8000").rstrip("/")
if urlsplit(BASE_URL).scheme not in {"http", "https"} or not urlsplit(BASE_URL).hostname:
    raise ImproperlyConfigured(f"BASE_URL={BASE_URL!r}: write the address that people open, https://…")
HTTPS = BASE_URL.startswith("https://")
ALLOWED_HOSTS = env_list("ALLOWED_HOSTS") or [urlsplit(BASE_URL).hostname or "localhost"]
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env_bool("BEHIND_TLS_PROXY", False) else None
SECURE_SSL_REDIRECT = HTTPS and env_bool("SECURE_SSL_REDIRECT", True)
SECURE_HSTS_SECONDS = env_int("SECURE_HSTS_SECONDS", 31_536_000 if HTTPS else 0, low=0, high=63_072_000)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF],
    "style-src": [CSP.SELF],
    "img-src": [CSP.SELF, "data:"],
    "connect-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "base-uri": [CSP.NONE],
    "frame-ancestors": [CSP.NONE],
    "manifest-src": [CSP.SELF],
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 256 * 1024

# --- the application ----------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "approvals",
    "ledger",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "allauth",
    "allauth.account",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "approvals.middleware.RequestIdMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "approvals.middleware.PageHeadersMiddleware",
]
ROOT_URLCONF = "approvals.urls"
WSGI_APPLICATION = "approvals.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["approvals.templatetags.second_key"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
FORMS_URLFIELD_ASSUME_HTTPS = True

# --- PostgreSQL: the truth ----------------------------------------------------------------------------------
DATABASES = {
    "default": database(
        env("DATABASE_URL", "postgresql://second_key_app@127.0.0.1/second_key"), "DATABASE_URL"
    )
}
if env("DATABASE_OWNER_URL"):  # only where migrations run; the application's processes do without it
    DATABASES["owner"] = database(env("DATABASE_OWNER_URL"), "DATABASE_OWNER_URL")
APPLICATION_ROLE = DATABASES["default"]["USER"]
ENCRYPTION_KEYS = env_list("SECOND_KEY_ENCRYPTION_KEYS")  # Fernet keys, the newest first

# --- Redis and Celery: only the speed -----------------------------------------------------------------------
REDIS_URL = env("REDIS_URL", "redis://127.0.0.1:6379/0")
if urlsplit(REDIS_URL).scheme not in {"redis", "rediss"}:
    raise ImproperlyConfigured("REDIS_URL must be a redis:// or rediss:// address")
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False  # recovery is from the outbox; a requeue would only loop poison
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # a cut call would only become unknown
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": env_int("CELERY_VISIBILITY_TIMEOUT", 600, low=1, high=86_400),
    "socket_keepalive": True,
    "socket_connect_timeout": 5,
    "health_check_interval": 10,
}
CELERY_DB_REUSE_MAX = 100_000  # connections live with their thread; run_step closes the unusable ones itself
CELERY_TASK_DEFAULT_QUEUE = "steps"
CELERY_TASK_ROUTES = {"ledger.relay": {"queue": "sweeps"}, "approvals.purge_keys": {"queue": "sweeps"}}
CELERY_BEAT_SCHEDULER = "celery.beat:Scheduler"  # in memory: every sweep is safe to run twice or late

# --- the ledger ---------------------------------------------------------------------------------------------
LEDGER_DEADLINE_SECONDS = env_number("LEDGER_DEADLINE_SECONDS", 20, low=0.2, high=300)
LEDGER_LEASE_SECONDS = env_number("LEDGER_LEASE_SECONDS", LEDGER_DEADLINE_SECONDS + 10, low=0.5, high=900)
if LEDGER_LEASE_SECONDS < LEDGER_DEADLINE_SECONDS * 1.2:
    raise ImproperlyConfigured("LEDGER_LEASE_SECONDS must exceed LEDGER_DEADLINE_SECONDS by a fifth or more")
LEDGER_RELAY_SECONDS = env_number("LEDGER_RELAY_SECONDS", 1, low=0.05, high=60)
LEDGER_REPUBLISH_SECONDS = env_number("LEDGER_REPUBLISH_SECONDS", 5, low=0.1, high=600)
LEDGER_OBSERVATION_MAX_AGE_SECONDS = env_number("LEDGER_OBSERVATION_MAX_AGE_SECONDS", 30, low=0.1, high=3600)
LEDGER_BACKOFF_SECONDS = env_number("LEDGER_BACKOFF_SECONDS", 2, low=0.05, high=600)
LEDGER_GUARDS = ["approvals.guards.authorization_in_force"]
LEDGER_STEPS = {
    "execute": "ledger.execution.execute",
    "watchdog": "ledger.execution.watch",
    "reconcile": "ledger.reconciliation.reconcile",
    "observe": "approvals.observation.observe",
    "expire": "approvals.decisions.expire_due",
}
CELERY_BEAT_SCHEDULE = {
    "relay": {
        "task": "ledger.relay",
        "schedule": timedelta(seconds=LEDGER_RELAY_SECONDS),
        "options": {"expires": max(5.0, LEDGER_RELAY_SECONDS * 3)},
    },
    "purge-keys": {
        "task": "approvals.purge_keys",
        "schedule": timedelta(minutes=15),
        "options": {"expires": 600},
    },
}

# --- the agents' side ---------------------------------------------------------------------------------------
IDEMPOTENCY_RETENTION = timedelta(
    hours=env_number("IDEMPOTENCY_RETENTION_HOURS", 24, low=0.01, high=24 * 400)
)
API_MAX_BODY = 64 * 1024
API_RATE_PER_MINUTE = env_int("API_RATE_PER_MINUTE", 30_000, low=1, high=10_000_000)  # per agent and process
WEB_THREADS = env_int("WEB_THREADS", 8, low=1, high=64)  # each keeps a database connection

# --- people -------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "approvals.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "approvals.accounts.ClosedAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = False

# --- static files -------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # small and few: served from where they are, no collecting step to forget
WHITENOISE_MAX_AGE = 0 if DEBUG else 300

# --- logging: structured, one line each, never a request's body -----------------------------------------------
LOG_LEVEL = env("LOG_LEVEL", "INFO").upper()
if LOG_LEVEL not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
    raise ImproperlyConfigured(f"LOG_LEVEL={LOG_LEVEL!r}: write DEBUG, INFO, WARNING or ERROR")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"structured": {"()": "approvals.logs.formatter"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "structured", "stream": sys.stderr}
    },
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": ["console"], "level": "WARNING", "propagate": False},
        "celery.app.trace": {"level": "WARNING"},
        "celery.beat": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        "stripe": {"level": "WARNING"},
    },
}
