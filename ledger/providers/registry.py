"""Which adapter speaks for which provider. A new provider is a line here and a module beside this one."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ledger.providers.base import Account, Adapter, Capabilities
from ledger.providers.stripe import STRIPE, StripeAdapter


class UnknownProviderError(LookupError):
    """No adapter has this name. Correct the provider of the account, or register an adapter."""


_ADAPTERS: Final[Mapping[str, tuple[Capabilities, Callable[[Account, Capabilities], Adapter]]]] = (
    MappingProxyType({"stripe": (STRIPE, StripeAdapter)})
)

PROVIDERS: Final = frozenset(_ADAPTERS)


def adapter_for(account: Account) -> Adapter:
    """The adapter of an account. UnknownProviderError, or ValueError for an account it cannot use."""
    capabilities, factory = _entry(account.provider)
    return factory(account, capabilities)


def capabilities_of(provider: str) -> Capabilities:
    """What a provider promises, without an account and its secret."""
    return _entry(provider)[0]


def _entry(provider: str) -> tuple[Capabilities, Callable[[Account, Capabilities], Adapter]]:
    try:
        return _ADAPTERS[provider]
    except KeyError:
        raise UnknownProviderError(f"no adapter for the provider {provider!r}") from None
