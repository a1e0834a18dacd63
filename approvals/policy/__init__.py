"""Policies: rules as data, evaluated by pure code."""
