"""The one clock. Every moment that decides something is read here, from PostgreSQL, after the lock is held.

`ledger_now()` is `clock_timestamp()`; tests redefine the SQL function over the owner's connection, so that
exact boundaries and retention can be tried. No host's clock decides anything (design: invariant 7).
"""

from datetime import datetime

from django.db import connection


def now() -> datetime:
    """The database's time, aware, in UTC. Inside a transaction call it after the row lock, never before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_now()")
        row = cursor.fetchone()
    moment: datetime = row[0]
    return moment
