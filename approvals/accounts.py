"""Sign-in of people through django-allauth; nobody signs up by themselves."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class ClosedAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Accounts are made by an administrator (`manage.py create_admin`), never by a visitor."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Always closed."""
        return False
