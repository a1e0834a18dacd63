#!/usr/bin/env python
"""Django's command line; `manage.py demo` starts everything, `manage.py doctor` says what is wrong."""

import os
import sys


def main() -> None:
    """Run one management command."""
    if sys.version_info < (3, 12):  # noqa: UP036 - whoever runs an older one is told so
        sys.exit("Second Key needs Python 3.12 or newer; this is %d.%d." % sys.version_info[:2])  # noqa: UP031
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError as error:
        sys.exit(f"{error}. The packages are missing: run the command of README.md, 'Run it'.")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
