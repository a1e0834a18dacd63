"""Used by `manage.py demo`: make the tenants, people, agents and payments of the demonstration."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from approvals.demo.seed import seed


class Command(BaseCommand):
    """Seed the demonstration; safe to repeat."""

    help = "Make what the demonstration needs; called by `manage.py demo`."

    def add_arguments(self, parser: CommandParser) -> None:
        """Where the cast is kept, and where the sandbox answers."""
        parser.add_argument("cast", type=Path)
        parser.add_argument("sandbox_url")

    def handle(self, *args: Any, **options: Any) -> None:
        """Seed."""
        seed(options["cast"], options["sandbox_url"])
