"""A method with options on a probe: what a check is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from benchmark.conformance.report import require, where
from benchmark.seeds import seed_all
from datamodules.base import DataModule
from datamodules.spec import Batch, Task
from methods.base import Method, Output, Recipe

RECIPE = Recipe(width=8, epochs=1, batch_size=64, lr=1e-2, patience=1)


@dataclass(frozen=True)
class Case:
    """What is checked.

    Attributes:
        options: Complete, defaults included.
        is_default: Whether they are all at their defaults: then the costly checks run too.
    """

    cls: type[Method]
    options: Mapping[str, Any]
    datamodule: DataModule
    is_default: bool = True

    @property
    def task(self) -> Task:
        return self.datamodule.task

    def build(self, seed: int = 0) -> Method:
        """The method, untrained."""
        seed_all("conformance", seed)
        method = self.cls.__new__(self.cls, self.task, RECIPE, **self.options)
        try:
            method.__init__(self.task, RECIPE, **self.options)
        except AttributeError:
            _require_initialised(method)
            raise
        _require_initialised(method)
        return method

    def batch(self, rows: int = 64) -> Batch:
        """The first rows of the training split."""
        return self.datamodule.ordered("train").take(slice(0, rows))


def answer(method: Method, batch: Batch) -> Output:
    """What a method makes of a batch, without gradients."""
    with torch.no_grad():
        return method(batch.inputs, batch.present)


def _require_initialised(method: Method) -> None:
    message = "`__init__` must begin with `super().__init__(task, recipe, ...)`"
    require("_modules" in vars(method), message + where(type(method).__init__))
