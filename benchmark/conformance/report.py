"""What a check says: one result of one check on one probe, and how a check that fails says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Broken(AssertionError):
    """A check that fails; the message says what is wrong and how to mend it."""


@dataclass(frozen=True)
class Result:
    """One check of one thing on one probe."""

    check: str
    probe: str
    passed: bool
    detail: str = ""


def require(condition: bool, message: str) -> None:
    """Raise `Broken` with the message unless the condition holds."""
    if not condition:
        raise Broken(message)


def run_check(check: str, probe: str, function: Callable[[], str | None]) -> Result:
    """Run a check; whatever it raises is its result."""
    try:
        return Result(check, probe, True, function() or "")
    except Broken as error:
        return Result(check, probe, False, str(error))
    except Exception as error:  # noqa: BLE001 - any error of the checked code is a finding, not ours
        return Result(check, probe, False, f"raised {type(error).__name__}: {error}")
