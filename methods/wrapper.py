"""A method around another."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods.base import Encoded, Method, Output, Recipe, Stage, Tokens
from methods.registry import methods
from methods.stage import as_one


@dataclass(frozen=True)
class Base:
    """The method a wrapper wraps, by name.

    `base = "low_rank"` or `base = { name = "low_rank", rank = 8 }` in a matrix.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_option(cls, key: str, value: Any) -> Base:
        """As a matrix writes it."""
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            return cls(value["name"], {k: v for k, v in value.items() if k != "name"})
        raise ValueError(f'`{key}` must be a method name or {{ name = "..", .. }}, got {value!r}')

    def build(self, task: Task, recipe: Recipe) -> Method:
        """Construct it."""
        return methods.get(self.name)(task, recipe, **self.options)


class Wrapper(Method):
    """A method around another: every station is the base's until a subclass overrides it."""

    _sketched: ClassVar[tuple[Any, Any]] = (None, None)

    def __init__(self, task: Task, recipe: Recipe, base: Base) -> None:
        # Built before anything else draws a random number: its weights are those of its own cell.
        built = base.build(task, recipe)
        super().__init__(task, recipe, encoders=nn.ModuleDict())
        self.base = built
        # Facts of the base's class.
        self.separable = built.separable  # pyright: ignore[reportAttributeAccessIssue]
        self.batch_statistic = built.batch_statistic  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def encoding_width(self) -> int:
        return self.base.encoding_width

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        return self.base.encode(inputs, present)

    def _learns_encoders(self) -> bool:
        return self.base._learns_encoders()

    def modality_encoders(self) -> list[nn.Module]:
        return self.base.modality_encoders()

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        return self.base.pool(tokens, present)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.base.fuse(z, present)

    def predict(self, fused: Tensor) -> Tensor:
        return self.base.predict(fused)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        return self.base.auxiliary(out, batch)

    def weights(self, z: Tensor, present: Tensor) -> Tensor | None:
        return self.base.weights(z, present)

    def uncertainty(self, out: Output, present: Tensor) -> Tensor | None:
        return self.base.uncertainty(out, present)

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        return self.base.diagnose(out, present)

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        return self.base.summary(train, test)

    def progress(self) -> dict[str, float]:
        return self.base.progress()

    def stages(self) -> tuple[Stage, ...]:
        return self.base.stages()

    @staticmethod
    def in_halves(base: tuple[Stage, ...], own: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """The stages of a base, then those of the wrapper, each with one half of the budget.

        The base's are the first epochs of its own cell, bit for bit, and twins have equally much left for their idea.
        """
        return (*as_one(base), *as_one(own))

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        base = cls.chosen_base(options)
        if reason := methods.get(base.name).applies_to(task, base.options):
            return reason
        if any(p.requires_grad for p in cls._sketch(task, options).parameters()):
            return None
        return f"needs a base that learns by gradient, and {cls._named(options)} is solved for"

    @classmethod
    def needs_plain_training(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        """The reason why not, for a wrapper that trains its base itself, on the task's loss: found without memory."""
        first, *more = cls._sketch(task, options).stages()
        if not more and first.solve is None and first.loss == "task" and first.terms is None:
            return None
        return f"needs a base that is trained in one stage on the task's loss, and {cls._named(options)} is not"

    @classmethod
    def needs_own_encoders(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        """The reason why not, for a wrapper that treats the encoders of its base one by one."""
        sketch = cls._sketch(task, options)
        try:
            known = sketch.separable and bool(sketch.modality_encoders())
        except AttributeError:  # of a modality that it does not encode
            known = False
        return None if known else f"needs a base with an encoder for each modality, and {cls._named(options)} has none"

    @classmethod
    def _sketch(cls, task: Task, options: Mapping[str, Any]) -> Method:
        """The base, built where tensors cost nothing; the last one again, because wrappers ask one after the other."""
        base = cls.chosen_base(options)
        asked = (methods.get(base.name), repr(base), task)
        if Wrapper._sketched[0] != asked:
            with torch.device("meta"):
                Wrapper._sketched = (asked, base.build(task, Recipe()))
        return Wrapper._sketched[1]

    @classmethod
    def _named(cls, options: Mapping[str, Any]) -> str:
        return repr(cls.chosen_base(options).name)

    @classmethod
    def chosen_base(cls, options: Mapping[str, Any]) -> Base:
        """The base of the options, or the default one."""
        return options.get("base", inspect.signature(cls).parameters["base"].default)
