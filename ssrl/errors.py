"""The one exception that is shown to a user as a sentence, without a traceback."""


class UserError(Exception):
    """Bad input: the message says what was found, what was expected, and what to type."""
