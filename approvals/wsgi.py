"""The plain WSGI entry: everything but waiting (`?wait=` answers at once here).

Importing it refuses a database role that can bypass the tenant fence, so what serves starts from here.
"""

import os

from django.core.handlers.wsgi import WSGIHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "approvals.settings")


def get_application() -> WSGIHandler:
    """Django's application behind the fence. Raises approvals.checks.UnfencedRoleError."""
    application = get_wsgi_application()
    from approvals.checks import guard_connections

    guard_connections()
    return application


application = get_application()
