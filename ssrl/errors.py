"""Errors that a user can act on."""


class UserError(Exception):
    """One clear sentence: the value found, what was expected, what to type."""
