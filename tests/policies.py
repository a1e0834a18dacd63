"""Policy documents that tests share."""

from typing import Any

DOCUMENT: dict[str, Any] = {
    "rules": [
        {"name": "small change", "when": {"currency": "usd", "max_amount": 1_000}, "outcome": "allow"},
        {"name": "refunds up to 500", "when": {"currency": "usd", "max_amount": 50_000}, "outcome": "review"},
        {
            "name": "too large",
            "when": {"currency": "usd"},
            "outcome": "deny",
            "reason": "More than 500.00 USD is refunded by the finance team only.",
        },
    ],
    "expires_in": 1800,
    "execute_within": 900,
}
