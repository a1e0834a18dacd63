"""`manage.py doctor`: whether this installation can work, and what to mend. Changes nothing."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from approvals.doctor.examination import examine
from approvals.doctor.findings import Finding, Level

MARKS = {Level.OK: "ok  ", Level.WARN: "WARN", Level.FAIL: "FAIL"}


class Command(BaseCommand):
    """Examine and tell."""

    help = "Check settings, database, roles, broker and the work that waits; say what to mend. Exit 1 if one fails."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own name and type

    def add_arguments(self, parser: CommandParser) -> None:
        """For programs, and for large journals."""
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
        parser.add_argument("--quick", action="store_true", help="do not verify the journals")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print each finding as it is known. Raises CommandError where one failed."""
        found: list[Finding] = []
        try:
            for finding in examine(quick=options["quick"]):
                found.append(finding)
                if not options["json"]:
                    self.say(finding)
        finally:
            connection.close()
        failed = sum(finding.level is Level.FAIL for finding in found)
        if options["json"]:
            body = {"ok": not failed, "findings": [finding.as_json() for finding in found]}
            self.stdout.write(json.dumps(body, indent=1))
        if failed:
            raise CommandError(f"{failed} of {len(found)} checks failed.")

    def say(self, finding: Finding) -> None:
        """One line, and what to mend below it."""
        self.stdout.write(f"{MARKS[finding.level]}  {finding.check}: {finding.said}")
        for line in finding.mend.splitlines():
            self.stdout.write(f"      {line}")
