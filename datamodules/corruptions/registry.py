"""Corruptions by name. A corruption is a plugin like a method: `@corruption("name", kinds=("image",))` on a function.

The function is `f(x, parameter, draw) -> x'`: batched, on `x.device`, pure, `x` untouched. `parameter` is the entry of
the severity table; all randomness comes from `draw`, so that the severity scales one and the same draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from datamodules.registry import Registry
from datamodules.spec import Kind, Modality

if TYPE_CHECKING:
    from torch import Tensor

    from datamodules.base import Gathered, Stored

Parameter = float | tuple[float, ...]
F = TypeVar("F", bound=Callable[..., Any])

KINDS: tuple[Kind, ...] = ("image", "sequence", "vector", "text")
LEVELS = 5

corruptions = Registry("corruption", "datamodules.corruptions", "polymodal.corruptions", decorator="corruption")


@dataclass(frozen=True)
class Facts:
    """What a corruption says of itself.

    Attributes:
        kinds: The modality kinds it applies to.
        version: Of the code; bump it when an output changes.
        severities: Five parameters of a plugin; ours are in `severities.toml`.
    """

    kinds: tuple[Kind, ...]
    version: int
    severities: tuple[Parameter, ...] | None


@dataclass(frozen=True)
class Draw:
    """Where a batch stands in its split, and the noise that belongs there.

    Attributes:
        key: Which noise (`corruption_key`).
        row: `[B]` position of each row in its split.
        modality: What `x` is.
        split: The whole modality of the split, for corruptions that borrow from other rows.
    """

    key: int
    row: Tensor
    modality: Modality
    split: Tensor | Gathered | Stored | None = None

    def normal(self, *shape: int, stream: int = 0) -> Tensor:
        """`[B, *shape]` standard normals."""
        from datamodules.corruptions import noise

        return noise.normals(self.key, self.row, shape, stream)

    def uniform(self, *shape: int, stream: int = 0) -> Tensor:
        """`[B, *shape]` uniforms in [0, 1)."""
        from datamodules.corruptions import noise

        return noise.uniforms(self.key, self.row, shape, stream)

    def integer(self, high: int, *shape: int, stream: int = 0) -> Tensor:
        """`[B, *shape]` integers in [0, high)."""
        from datamodules.corruptions import noise

        return noise.integers(self.key, self.row, shape, high, stream)


_facts: dict[str, Facts] = {}


def corruption(
    name: str, *, kinds: tuple[Kind, ...], version: int = 1, severities: tuple[Parameter, ...] | None = None
) -> Callable[[F], F]:
    """Make a function `f(x, parameter, draw) -> x'` available as corruption `name`; the arguments must be literals.

    Raises:
        ValueError: If a kind or the number of severities is wrong, or the name is taken.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"corruption {name!r}: expected `kinds` among {KINDS}, but got {unknown}")
    if severities is not None and len(severities) != LEVELS:
        raise ValueError(f"corruption {name!r}: expected {LEVELS} severities, but got {len(severities)}")

    def add(function: F) -> F:
        corruptions.register(name)(function)  # type: ignore[arg-type]  # the registry holds anything with a name
        _facts[name] = Facts(tuple(kinds), version, severities)
        return function

    return add


def facts(name: str) -> Facts:
    """What corruption `name` says of itself.

    Raises:
        KeyError: With a suggestion, if there is none.
    """
    corruptions.get(name)
    return _facts[name]


def plugins(kind: str) -> tuple[str, ...]:
    """Corruptions of `kind` that bring their own severities, in the order they were loaded."""
    return tuple(name for name, fact in _facts.items() if fact.severities is not None and kind in fact.kinds)
