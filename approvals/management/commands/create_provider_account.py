"""`manage.py create_provider_account acme`: where refunds go, with a secret that agents never hold."""

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import IntegrityError

from approvals.management.console import AdministrationCommand, secret, tenant, text
from ledger import accounts
from ledger.ids import new_id
from ledger.journal import SYSTEM
from ledger.models import ProviderAccount
from ledger.providers.base import Account
from ledger.providers.registry import PROVIDERS, adapter_for
from ledger.transactions import tenant_reads, tenant_transaction

STRIPE_URL = "https://api.stripe.com"


class Command(AdministrationCommand):
    """Make a provider account."""

    help = "Make a tenant's account at a payment provider; its secret is stored encrypted."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which provider, where it answers, and where the secret comes from."""
        parser.add_argument("tenant", help="the tenant's short name")
        parser.add_argument("--provider", default="stripe", help=f"{', '.join(sorted(PROVIDERS))} (stripe)")
        parser.add_argument("--name", default="main", help="what the account is called (main)")
        parser.add_argument(
            "--base-url", default=STRIPE_URL, help=f"https://host[:port] of the provider ({STRIPE_URL})"
        )
        parser.add_argument(
            "--secret-stdin",
            action="store_true",
            help="read the secret key from the first line of standard input; else it is asked for",
        )

    def run(self, options: dict[str, Any]) -> None:
        """One transaction, after the adapter has looked at everything."""
        tenant_id = tenant(options["tenant"])
        provider, base_url = options["provider"], options["base_url"].rstrip("/")
        name = text(options["name"], "The account's name", most=80)
        if provider not in PROVIDERS:
            raise CommandError(
                f"There is no adapter for {provider!r}; known are {', '.join(sorted(PROVIDERS))}."
            )
        if len(base_url) > 300:
            raise CommandError("The base URL is longer than 300 characters.")
        adapter_checks(provider, base_url, "placeholder")
        taken = (
            f"There is a {provider} account {name!r} in {options['tenant']} already; choose another --name."
        )
        with tenant_reads(tenant_id):
            known = ProviderAccount.objects.filter(tenant_id=tenant_id, provider=provider, name=name).exists()
        if known:
            raise CommandError(taken)
        accounts.encrypt("")  # no working key: say so before anybody types the secret
        key = secret("secret key", from_stdin=options["secret_stdin"])
        adapter_checks(provider, base_url, key)
        try:
            with tenant_transaction(tenant_id) as tx:
                account = accounts.create_account(
                    tx, provider=provider, name=name, base_url=base_url, secret=key
                )
                tx.journal(
                    "provider_account.created",
                    actor=SYSTEM,
                    account=account.id,
                    provider=provider,
                    name=name,
                    base_url=base_url,
                )
        except IntegrityError as error:
            raise CommandError(taken) from error
        self.stdout.write(f"Made the {provider} account {name} in {options['tenant']}, at {base_url}.")


def adapter_checks(provider: str, base_url: str, key: str) -> None:
    """Let the adapter look at address and secret as it will use them. Raises CommandError."""
    try:
        adapter_for(Account(id=str(new_id()), provider=provider, base_url=base_url, secret=key))
    except ValueError as error:
        raise CommandError(f"{str(error).rstrip('.')}; nothing was stored.") from error
