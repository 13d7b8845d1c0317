"""The error of everything a user can mend. Imports nothing, so that naming it costs nothing."""


class UsageError(ValueError):
    """Something the user wrote is wrong: the message says what, where, and what would be right."""
