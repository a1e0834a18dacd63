"""`manage.py create_admin acme ada`: a person who can sign in, with roles in a tenant."""

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from approvals import tenants
from approvals.management.console import AdministrationCommand, person, secret, tenant, text
from approvals.models import Role, User

PASSWORD_VARIABLE = "SECOND_KEY_PASSWORD"  # noqa: S105 - a variable's name


class Command(AdministrationCommand):
    """Make a person, or give one more roles."""

    help = (
        "Make a person with roles in a tenant (admin, where none are named); who exists gets the roles added."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Who, as what, and where the password comes from."""
        parser.add_argument("tenant", help="the tenant's short name")
        parser.add_argument("username")
        parser.add_argument(
            "--roles", default="admin", help=f"separated by commas: {', '.join(Role)} (admin)"
        )
        parser.add_argument("--email", default="")
        parser.add_argument("--full-name", default="")
        parser.add_argument(
            "--password-stdin",
            action="store_true",
            help=f"read the password from the first line of standard input; else {PASSWORD_VARIABLE}, else a prompt",
        )

    def run(self, options: dict[str, Any]) -> None:
        """Check everything first, so that nothing is half done."""
        tenant_id = tenant(options["tenant"])
        roles = parse_roles(options["roles"])
        user = person(options["username"])
        names = f"{' and '.join(sorted(roles))} in {options['tenant']}"
        if user is not None:
            if not user.is_active:
                raise CommandError(f"The account {user.username!r} is switched off; nothing was changed.")
            tenants.grant_roles(tenant_id, user, roles)
            self.stdout.write(f"{user.username} was known (the password stays) and is now also {names}.")
            return
        user = new_person(options)
        try:
            tenants.grant_roles(tenant_id, user, roles)
        except BaseException:
            User.objects.filter(
                pk=user.pk
            ).delete()  # an account without a role would be half of what was asked
            raise
        self.stdout.write(f"Made {user.username}: {names}.")


def parse_roles(words: str) -> list[Role]:
    """Roles from a comma-separated list, each once. Raises CommandError."""
    try:
        roles = list(dict.fromkeys(Role(word.strip()) for word in words.split(",") if word.strip()))
    except ValueError as error:
        raise CommandError(f"{error}: roles are {', '.join(Role)}, separated by commas.") from error
    if not roles:
        raise CommandError(f"Name at least one role: {', '.join(Role)}.")
    return roles


def new_person(options: dict[str, Any]) -> User:
    """Somebody who can sign in, checked before anything is written. Raises CommandError."""
    username = User.normalize_username(options["username"])
    full_name = text(options["full_name"], "The full name", most=150) if options["full_name"] else ""
    draft = User(username=username, email=options["email"])
    draft.first_name, _, draft.last_name = full_name.partition(" ")
    try:
        draft.clean_fields(exclude=["password"])
    except ValidationError as error:
        raise CommandError(
            "; ".join(f"{name}: {' '.join(said)}" for name, said in error.message_dict.items())
        ) from error
    password = secret("password", from_stdin=options["password_stdin"], variable=PASSWORD_VARIABLE)
    try:
        validate_password(password, draft)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    return tenants.create_person(username=username, password=password, email=draft.email, full_name=full_name)
