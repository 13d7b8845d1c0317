"""Search spaces: what `polymodal tune` may try of a method's own options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Space(Protocol):
    """A range of values, addressed by a number in [0, 1)."""

    def at(self, u: float) -> Any:
        """The value at a point of the range."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Numbers between two ends."""

    low: float
    high: float

    def at(self, u: float) -> float:
        return round(self.low + u * (self.high - self.low), 6)


@dataclass(frozen=True)
class LogUniform:
    """Numbers between two ends, each decade as likely as another."""

    low: float
    high: float

    def at(self, u: float) -> float:
        return float(f"{self.low * (self.high / self.low) ** u:.4g}")


@dataclass(frozen=True)
class OneOf:
    """One of some values."""

    values: Sequence[Any]

    def at(self, u: float) -> Any:
        return self.values[math.floor(u * len(self.values))]
