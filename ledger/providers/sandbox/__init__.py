"""A provider to practise against: its own process and its own books, speaking the Stripe API shape.

Nothing here may import Django, the ledger's models or anything of approvals: what the sandbox says about a
refund is evidence from outside, and it must stay evidence from outside. Never run it in production.
"""
