"""What the commands for administrators share: failing in words, and reading secrets without showing them.

No use case lives here. Commands run over the application's own connection, like everything that serves.
"""

import getpass
import os
import sys
from typing import Any, TextIO
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, OperationalError, ProgrammingError, connection

from approvals import tenants
from approvals.checks import UnfencedRoleError, ways_around
from approvals.models import User
from approvals.tenants import TenantError
from ledger.errors import LedgerError

DOCTOR = "`manage.py doctor` says what to mend."


class AdministrationCommand(BaseCommand):
    """A command that calls one use case. Whatever goes wrong ends it in one sentence, with status 1."""

    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own name and type; pages do not matter here

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it behind the fence. Raises CommandError."""
        try:
            ways = ways_around(connection)
            if ways:
                raise UnfencedRoleError(ways)
            self.run(options)
        except (TenantError, LedgerError, UnfencedRoleError) as error:
            raise CommandError(str(error)) from error
        except OperationalError as error:
            raise CommandError(f"The database does not answer: {one_line(error)}. {DOCTOR}") from error
        except ProgrammingError as error:
            raise CommandError(f"The database is not as it must be: {one_line(error)}. {DOCTOR}") from error
        except DatabaseError as error:
            raise CommandError(f"The database refused: {one_line(error)}.") from error
        finally:
            connection.close()

    def run(self, options: dict[str, Any]) -> None:
        """The command itself."""
        raise NotImplementedError


def one_line(error: Exception) -> str:
    """An error's own words without the line breaks and the point at the end."""
    return " ".join(str(error).split()).rstrip(".")


def tenant(slug: str) -> UUID:
    """The tenant of that short name. Raises TenantError, which names the tenants that there are."""
    return tenants.find_tenant(slug)


def person(username: str) -> User | None:
    """The account of that name; None where there is none. CommandError where only the case differs.

    Signing in does not look at the case, so two accounts that differ in nothing else must not exist.
    """
    found = User.objects.filter(username__iexact=User.normalize_username(username)).first()
    if found is not None and found.username != User.normalize_username(username):
        raise CommandError(
            f"There is {found.username!r} already; names that differ only in their case are one name."
        )
    return found


def text(value: str, what: str, *, most: int) -> str:
    """A name that can be stored and shown in one line. Raises CommandError."""
    stripped = value.strip()
    if not stripped or len(stripped) > most or not stripped.isprintable():
        raise CommandError(f"{what} must be 1 to {most} characters in one line, all of them visible.")
    return stripped


def secret(what: str, *, from_stdin: bool, variable: str = "", stdin: TextIO | None = None) -> str:
    """A secret from the first line of standard input, from a variable, or typed twice; never from the command line.

    Raises CommandError where there is none, or where the two differ.
    """
    if from_stdin:
        value = (stdin or sys.stdin).readline().rstrip("\r\n")
        if not value:
            raise CommandError(f"Standard input held no {what} in its first line.")
        return value
    if variable and os.environ.get(variable):
        return os.environ[variable]
    if not sys.stdin.isatty():
        other = f", or set {variable}" if variable else ""
        raise CommandError(
            f"There is nobody to ask for the {what}: pass it in the first line of standard input{other}."
        )
    value = getpass.getpass(f"{what.capitalize()}: ")
    if not value:
        raise CommandError(f"The {what} is empty.")
    if getpass.getpass(f"{what.capitalize()} (again): ") != value:
        raise CommandError("The two differ; nothing was changed.")
    return value
