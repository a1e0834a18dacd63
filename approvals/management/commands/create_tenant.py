"""`manage.py create_tenant acme --name Acme`: a tenant with its journal."""

from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.management.base import CommandError, CommandParser

from approvals import tenants
from approvals.management.console import AdministrationCommand, text


class Command(AdministrationCommand):
    """Make a tenant."""

    help = "Make a tenant. Its people, agents and provider accounts are made by the commands that follow."

    def add_arguments(self, parser: CommandParser) -> None:
        """What it is called."""
        parser.add_argument("slug", help="short name for commands: letters, digits, - and _")
        parser.add_argument("--name", default="", help="name that people see (the short name)")
        parser.add_argument(
            "--time-zone", default="UTC", help="zone that its people see times in, e.g. Europe/Berlin"
        )

    def run(self, options: dict[str, Any]) -> None:
        """One transaction."""
        slug = text(options["slug"], "The short name", most=60)
        name = text(options["name"] or slug, "The name", most=120)
        zone = options["time_zone"]
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise CommandError(f"{zone!r} is no time zone; write one like Europe/Berlin, or UTC.") from error
        tenants.create_tenant(slug=slug, name=name, time_zone=zone)
        self.stdout.write(
            f"Made the tenant {slug}. Next, in any order:\n"
            f"  manage.py create_admin {slug} USERNAME --roles admin\n"
            f"  manage.py create_admin {slug} USERNAME --roles reviewer\n"
            f"  manage.py create_provider_account {slug}\n"
            f"  manage.py publish_policy {slug} refund POLICY.json\n"
            f"  manage.py create_agent {slug} NAME"
        )
