"""What a check says: one result of one check on one probe, and how a check that fails says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.registry import raised_at

if TYPE_CHECKING:
    from torch import Tensor


class Broken(AssertionError):
    """A check that fails; the message says what is wrong and how to mend it."""


class Doubtful(Exception):
    """A check that passes, and something its author should look at."""


@dataclass(frozen=True)
class Result:
    """One check of one thing on one probe.

    Attributes:
        detail: What is wrong and how to mend it, or what should be known.
        variant: The options it was checked with, where they are not the defaults.
        warning: It passed, and `detail` should be looked at.
    """

    check: str
    probe: str
    passed: bool
    detail: str = ""
    variant: str = ""
    warning: bool = False

    def __str__(self) -> str:
        return " ".join(filter(None, (self.check, self.probe, self.variant))) + (f": {self.detail}" * bool(self.detail))

    @property
    def cause(self) -> str:
        """The detail without what differs from probe to probe: numbers, names and lists."""
        return re.sub(r"\[[^\]]*\]|'[^']*'|\d+", "#", self.detail)


def require(condition: bool, message: str) -> None:
    """Raise `Broken` with the message unless the condition holds."""
    if not condition:
        raise Broken(message)


def require_shape(
    station: str, x: Tensor, wanted: tuple[int | None, ...], function: Callable[..., Any], hint: str = ""
) -> None:
    """Raise `Broken` unless what a station returned has the shape that is wanted; None is any size."""
    letters = {2: "BF", 3: "BMD"}[len(wanted)]
    said = ", ".join(["B", *(str(n or letter) for n, letter in zip(wanted[1:], letters[1:], strict=True))])
    fits = len(x.shape) == len(wanted) and all(w in (None, n) for n, w in zip(x.shape, wanted, strict=True))
    require(fits, f"`{station}` must return [{said}], got {list(x.shape)}{hint}{where(function)}")


def run_check(
    check: str, probe: str, function: Callable[[], str | None], variant: str = "", own: Collection[str] = ()
) -> Result:
    """Run a check; whatever it raises is its result, with the last line of the checked files it came through."""
    try:
        return Result(check, probe, True, function() or "", variant)
    except Doubtful as doubt:
        return Result(check, probe, True, str(doubt), variant, warning=True)
    except Broken as error:
        return Result(check, probe, False, str(error), variant)
    except Exception as error:  # noqa: BLE001 - any error of the checked code is a finding, not ours
        found = raised_at(error, own.__contains__)
        place = f"; {Path(found[0]).name}:{found[1]}" if found else ""
        return Result(check, probe, False, f"raised {type(error).__name__}: {error}{place}", variant)


def where(function: object) -> str:
    """`; file.py:27`, the place of a function's definition, to end a message with."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return f"; {Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
