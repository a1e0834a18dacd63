"""`migrate` as the owner, then the application role's rights: one command that cannot be half done."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands.migrate import Command as Migrate
from django.db import connections, transaction

from ledger import fence


class Command(Migrate):
    """Django's own `migrate`, over the owner's connection."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Default to the owner's connection."""
        super().add_arguments(parser)
        parser.set_defaults(database="owner")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate, then grant the application's role exactly what the models declare."""
        alias = options["database"]
        if alias not in settings.DATABASES:
            raise CommandError(
                "DATABASE_OWNER_URL is not set. Migrations run as the role that owns the tables, which is not the "
                "application's: set DATABASE_OWNER_URL for this command only, and run it again."
            )
        super().handle(*args, **options)
        with transaction.atomic(using=alias):
            fence.grant(connections[alias], settings.APPLICATION_ROLE)
