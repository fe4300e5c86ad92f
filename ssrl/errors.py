"""What went wrong, in words for the person who typed the command."""


class UserError(Exception):
    """One clear sentence: the value found, what was expected, what to type."""
