"""Used by `manage.py demo`: walk one refund through, plainly and with a lost acknowledgement."""

from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from approvals import tenants
from approvals.audit import records
from approvals.audit.text import as_text
from approvals.demo.browser import WalkError
from approvals.demo.seed import load
from approvals.demo.walk import Stage, walk
from ledger.transactions import tenant_reads


class Command(BaseCommand):
    """Walk and judge by the provider's books."""

    help = "Walk one refund through; called by `manage.py demo`."

    def add_arguments(self, parser: CommandParser) -> None:
        """The cast that was seeded, and where things answer."""
        parser.add_argument("cast", type=Path)
        parser.add_argument("base_url")
        parser.add_argument("sandbox_url")

    def handle(self, *args: Any, **options: Any) -> None:
        """Both walks; a failure where the books show anything but one refund each."""
        stage = Stage(
            base_url=options["base_url"],
            sandbox_url=options["sandbox_url"],
            cast=load(options["cast"])["acme"],
            say=self.stdout.write,
        )
        try:
            walked = [
                walk(stage, "1. A refund, plainly"),
                walk(stage, "2. The same, and the provider's acknowledgement is lost", fault="lose_ack"),
            ]
        except WalkError as error:
            raise CommandError(str(error)) from error
        for one in walked:
            self.stdout.write("\n" + self.answers(one.action_id))
        if not all(one.once for one in walked):
            raise CommandError("the provider's books do not show each refund exactly once")
        self.stdout.write("\nThe books show each refund once.")

    def answers(self, action_id: str) -> str:
        """The three answers about an action, from stored evidence alone."""
        tenant_id = tenants.find_tenant("acme")
        with tenant_reads(tenant_id):
            story = records.story(UUID(action_id))
        if story is None:
            raise CommandError(f"there is no story of action {action_id}")
        return as_text(story)
