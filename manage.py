#!/usr/bin/env python
"""Django's command line; `manage.py demo` starts everything, `manage.py doctor` says what is wrong."""

import os
import sys


def main() -> None:
    """Run one management command."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(f"{error}. The packages are missing: run the command of README.md, 'Run it'.")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
