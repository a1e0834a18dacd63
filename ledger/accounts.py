"""Provider accounts and their secrets: encrypted at rest, in plain text only inside the call that uses them."""

from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from ledger.errors import LedgerError
from ledger.models import ProviderAccount
from ledger.providers.base import Account, Adapter, ProviderUnavailableError
from ledger.providers.registry import adapter_for
from ledger.transactions import Tx


class SecretUnreadableError(LedgerError):
    """A provider secret cannot be decrypted; put the key it was encrypted with back into SECOND_KEY_ENCRYPTION_KEYS."""


def _box() -> MultiFernet:
    if not settings.ENCRYPTION_KEYS:
        raise SecretUnreadableError(
            "SECOND_KEY_ENCRYPTION_KEYS is empty; set it to a Fernet key (44 characters) and keep it safe."
        )
    try:
        return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])
    except ValueError as error:
        raise SecretUnreadableError(
            "SECOND_KEY_ENCRYPTION_KEYS holds something that is no Fernet key (32 bytes, url-safe base64)."
        ) from error


def encrypt(secret: str) -> bytes:
    """Encrypt with the newest key."""
    return _box().encrypt(secret.encode())


def decrypt(token: bytes | memoryview) -> str:
    """Decrypt with whichever key fits. Raises SecretUnreadableError."""
    try:
        return _box().decrypt(bytes(token)).decode()
    except InvalidToken as error:
        raise SecretUnreadableError from error


def create_account(tx: Tx, *, provider: str, name: str, base_url: str, secret: str) -> ProviderAccount:
    """Store an account of the transaction's tenant."""
    return ProviderAccount.objects.create(
        tenant_id=tx.tenant_id,
        provider=provider,
        name=name,
        base_url=base_url,
        encrypted_secret=encrypt(secret),
        created_at=tx.now(),
    )


def adapter(account: ProviderAccount) -> Adapter:
    """The adapter that speaks for an account. Raises ProviderUnavailableError where its settings are of no use."""
    try:
        return adapter_for(
            Account(
                id=str(account.id),
                provider=account.provider,
                base_url=account.base_url,
                secret=decrypt(account.encrypted_secret),
            )
        )
    except (SecretUnreadableError, LookupError, ValueError) as error:
        raise ProviderUnavailableError("account_unusable", str(error)) from error


def resource_key(account_id: UUID, provider: str, resource: str) -> str:
    """The opaque name of the thing whose balance an effect moves, e.g. `stripe:<account id>:pi_3Q`."""
    return f"{provider}:{account_id}:{resource}"
