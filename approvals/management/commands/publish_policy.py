"""`manage.py publish_policy acme refund policy.json`: the next version of a policy, in force from then on."""

import getpass
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from approvals import kinds, policies, strictjson
from approvals.management.console import AdministrationCommand, tenant, text
from approvals.policy.rules import PolicyError, parse
from ledger.transactions import tenant_reads


class Command(AdministrationCommand):
    """Publish a policy."""

    help = "Publish a tenant's policy for a kind of action. Versions never change; this makes the next one."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose policy for what, and its document."""
        parser.add_argument("tenant", help="the tenant's short name")
        parser.add_argument("kind", help=f"kind of action: {', '.join(kinds.KINDS)}")
        parser.add_argument("file", help="the policy as JSON; - reads standard input")
        parser.add_argument(
            "--by", default="", help="who publishes, for the record (your name on this machine)"
        )

    def run(self, options: dict[str, Any]) -> None:
        """One transaction, after the document was read whole."""
        tenant_id = tenant(options["tenant"])
        kind = options["kind"]
        try:
            kinds.get(kind)
        except kinds.UnknownKindError as error:
            raise CommandError(str(error)) from error
        document = read_policy(options["file"])
        with tenant_reads(tenant_id):
            standing = policies.current(tenant_id, kind)
        if standing is not None and standing.rules == document:
            self.stdout.write(f"Version {standing.version} says exactly this already; nothing was published.")
            return
        by = text(options["by"] or getpass.getuser(), "--by", most=120)
        version = policies.publish(tenant_id, kind=kind, document=document, by=by)
        self.stdout.write(f"Version {version} of the policy for {kind} is in force in {options['tenant']}.")


def read_policy(name: str) -> Any:
    """The document, parsed strictly and checked. Raises CommandError."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.") from error
    try:
        document = strictjson.loads(raw)
        parse(document)
    except strictjson.StrictJSONError as error:
        raise CommandError(
            f"{name} is not JSON that can be read in one way only: {error} Nothing was published."
        ) from error
    except PolicyError as error:
        raise CommandError(f"{name} is no policy: {error}. Nothing was published.") from error
    return document
