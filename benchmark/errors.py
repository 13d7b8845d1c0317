"""The error of everything a user can mend, and how text that is not ours is shown. Imports nothing of ours."""

import re

# What a terminal obeys instead of showing: escape sequences, a turned reading direction, halves of characters.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class UsageError(ValueError):
    """Something the user wrote is wrong: the message says what, where, and what would be right."""


def printable(text: object, limit: int = 4000) -> str:
    """Text as a terminal may show it: what it would obey is spelled, what is too long is cut."""
    said = str(text)
    if len(said) > limit:
        said = f"{said[:limit]} ... ({len(said):,} characters)"
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), said)
