"""The demonstration: what it seeds, and the walk of one refund over plain HTTP. Never part of an installation."""
