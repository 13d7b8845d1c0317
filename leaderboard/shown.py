"""Text that others wrote, made safe to show: what a terminal, a spreadsheet or a reader's eye would obey is spelt out.

A method, a dataset, an error may be called anything. Every output of the leaderboard passes its names through here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

# Control characters (escape sequences among them), characters that turn the direction of what follows, and lone
# surrogates, which no file can be written with.
_SPACE = re.compile(r"[\t\n\r]+")
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_FORMULA = ("=", "+", "-", "@")


def shown(text: str) -> str:
    """One line with everything spelt out that would be obeyed instead of shown: ESC is written `\\x1b`."""
    return _OBEYED.sub(lambda found: _spelt(ord(found[0])), _SPACE.sub(" ", text))


def shown_within(value: Any) -> Any:
    """JSON types with every string in them, keys too, as `shown` writes it."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {shown(str(key)): shown_within(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [shown_within(item) for item in cast("Sequence[Any]", value)]
    return value


def shown_json(value: Any) -> str:
    """JSON of what `shown_within` makes of JSON types, which is mostly what they are: few names need spelling."""
    text = _json(value)
    return _json(shown_within(value)) if "\\" in text or _OBEYED.search(text) else text


def shortened(text: str, longest: int) -> str:
    """A long name loses its middle: what tells two of them apart is mostly at the end."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[: longest - 1 - half]}…{text[-half:]}"


def field(text: str) -> str:
    """A field of a CSV file that no spreadsheet takes for a formula."""
    safe = shown(text)
    return f"'{safe}" if safe.startswith(_FORMULA) else safe


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def _spelt(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
