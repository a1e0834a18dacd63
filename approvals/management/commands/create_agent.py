"""`manage.py create_agent acme support-bot --owner ada`: a program that may propose, and its token."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import IntegrityError

from approvals import agents
from approvals.management.console import AdministrationCommand, person, tenant, text
from approvals.models import Agent, Membership, User
from ledger.transactions import tenant_reads


class Command(AdministrationCommand):
    """Make an agent."""

    help = "Make an agent and print its token, once: the token alone goes to standard output."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which agent, and whose."""
        parser.add_argument("tenant", help="the tenant's short name")
        parser.add_argument("name", help="what reviewers see, e.g. support-bot")
        parser.add_argument(
            "--owner", default="", help="the person behind it, who may not decide on what it asks"
        )

    def run(self, options: dict[str, Any]) -> None:
        """One transaction; what is printed afterwards cannot be read again."""
        tenant_id = tenant(options["tenant"])
        name = text(options["name"], "The agent's name", most=80)
        owner: User | None = None
        if options["owner"]:
            owner = person(options["owner"])
            if owner is None or not Membership.objects.filter(user=owner, tenant_id=tenant_id).exists():
                raise CommandError(
                    f"{options['owner']!r} is nobody in {options['tenant']}; make them with "
                    f"`manage.py create_admin {options['tenant']} {options['owner']}`."
                )
        taken = (
            f"There is an agent {name!r} in {options['tenant']} already, and its token cannot be read again."
        )
        with tenant_reads(tenant_id):
            known = Agent.objects.filter(tenant_id=tenant_id, name=name).exists()
        if known:
            raise CommandError(f"{taken} Choose another name.")
        try:
            token = agents.create_agent(tenant_id, name=name, owner=owner)
        except IntegrityError as error:
            raise CommandError(f"{taken} Choose another name.") from error
        self.stderr.write(f"Made the agent {name} in {options['tenant']}. Its token, shown this once:")
        self.stdout.write(token)
