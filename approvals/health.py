"""Whether this process can work: for load balancers, and numbers for Prometheus. No tenant's data, ever.

A lost broker or a slow worker makes the gateway `degraded`, not unready: reviewers must be able to decide
without Redis, and what they decide waits in PostgreSQL.
"""

import logging
from collections.abc import Iterator
from functools import cache

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from redis.backoff import NoBackoff
from redis.retry import Retry

from ledger import outbox

logger = logging.getLogger(__name__)

OLDEST_DUE_SECONDS = 120
BROKER_SECONDS = 0.25


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:
    """200 when this process and its database answer, else 503."""
    reason = database_fault()
    if reason:
        return JsonResponse({"status": "down", "reasons": [reason]}, status=503, headers={"Retry-After": "5"})
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when the database answers and is migrated, with `degraded`; else 503 with `reasons`."""
    reasons = []
    reason = database_fault()
    if reason:
        reasons.append(reason)
    elif unapplied_migrations():
        reasons.append("migrations_missing")
    if reasons:
        body = {"status": "unready", "reasons": reasons, "degraded": []}
        return JsonResponse(body, status=503, headers={"Retry-After": "5"})
    degraded = [fault for fault in (broker_fault(), outbox_fault()) if fault]
    return JsonResponse({"status": "ready", "degraded": degraded})


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Counts for Prometheus."""
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


def database_fault() -> str:
    """`database` where it does not answer, else nothing."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("database does not answer", extra={"error": str(error)})
        connection.close()
        return "database"
    return ""


@cache
def migrations_on_disk() -> frozenset[tuple[str, str]]:
    """Every migration that this program brings along; it does not change while the process lives."""
    return frozenset(MigrationLoader(None).disk_migrations)


def unapplied_migrations() -> list[tuple[str, str]]:
    """What the database lacks of them."""
    applied = MigrationRecorder(connection).applied_migrations()
    return sorted(migrations_on_disk() - applied.keys())


def broker_fault() -> str:
    """`broker` where Redis does not answer within a quarter of a second, else nothing."""
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=BROKER_SECONDS,
        socket_timeout=BROKER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        client.ping()
    except (redis.RedisError, OSError):
        return "broker"
    finally:
        client.close()
    return ""


def outbox_fault() -> str:
    """`outbox` where a step has been due for more than two minutes: no worker is doing the work."""
    return "outbox" if outbox.health().oldest_seconds > OLDEST_DUE_SECONDS else ""


class OutboxCollector(Collector):
    """The outbox's length and age, read from PostgreSQL at each scrape."""

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing is read when the registry is made."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Two gauges, or only the first where the database does not answer."""
        try:
            found = outbox.health()
        except DatabaseError:
            connection.close()
            yield GaugeMetricFamily(
                "second_key_database_up", "Whether PostgreSQL answered this scrape.", value=0
            )
            return
        yield GaugeMetricFamily("second_key_database_up", "Whether PostgreSQL answered this scrape.", value=1)
        yield GaugeMetricFamily("second_key_outbox_due", "Steps that are due.", value=found.due)
        yield GaugeMetricFamily(
            "second_key_outbox_oldest_due_seconds",
            "How long the oldest due step has been waiting; grows when no worker works.",
            value=found.oldest_seconds,
        )


REGISTRY = CollectorRegistry()
REGISTRY.register(OutboxCollector())
ProcessCollector(registry=REGISTRY)

SUBMISSIONS = Counter(
    "second_key_submissions",
    "Submissions that this process answered: created, replayed (same key), repeated (same operation, another key) "
    "or refused.",
    ["result"],
    registry=REGISTRY,
)
