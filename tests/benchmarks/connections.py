"""How a process should hold its database connections: `python -m tests.benchmarks.connections`.

One short tenant read (set the fence, one select by primary key) through Django on one thread, with a new
connection each time, a psycopg pool that is given back each time, and a connection that stays with its
thread. Medians of five rounds; the ratios are what counts.
"""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

from approvals.embedded.engines import Engines

ROUNDS, READS = 5, 300


def main() -> None:
    """Measure and print."""
    with Engines(durable=False) as engines:
        os.environ.update(engines.addresses.environment())
        os.environ["DJANGO_SETTINGS_MODULE"] = "approvals.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        measure()


def measure() -> None:
    """The three ways, in turns, so that a busy moment hits all of them."""
    from django.db import connection, connections

    from approvals import tenants
    from approvals.models import TenantProfile
    from ledger.transactions import tenant_reads

    tenant_id = tenants.create_tenant(slug="bench", name="Bench")

    def read() -> None:
        with tenant_reads(tenant_id):
            TenantProfile.objects.get(tenant_id=tenant_id)

    def give_back() -> None:
        connection.close()

    def keep() -> None:
        pass

    ways: dict[str, tuple[bool, Callable[[], None]]] = {
        "new connection each time": (False, give_back),
        "pool": (True, give_back),
        "persistent": (False, keep),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    options = connections["default"].settings_dict["OPTIONS"]
    for _ in range(ROUNDS):
        for name, (pooled, after) in ways.items():
            connection.close()
            options["pool"] = {"min_size": 1, "max_size": 2} if pooled else False
            connections["default"].settings_dict["CONN_MAX_AGE"] = 0 if pooled else None
            read()
            began = time.perf_counter()
            for _ in range(READS):
                read()
                after()
            found[name].append((time.perf_counter() - began) / READS * 1000)
            if pooled:
                connection.close()
                cast("Any", connection).close_pool()
    best = min(statistics.median(times) for times in found.values())
    for name, times in found.items():
        median = statistics.median(times)
        print(f"{name:26} {median:7.3f} ms a read, {median / best:5.2f} x the best")


if __name__ == "__main__":
    main()
