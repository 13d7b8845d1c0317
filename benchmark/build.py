"""From the names and options of a cell to its dataset and its method."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from benchmark.errors import UsageError
from benchmark.options import divide, resolve
from datamodules.base import DataModule
from datamodules.encoders.features import Features
from datamodules.options import convert, hints, parameters
from datamodules.registry import datasets, did_you_mean
from datamodules.rows.incomplete import Incomplete
from datamodules.spec import Task
from methods.base import Method, Recipe
from methods.registry import methods


def build_dataset(name: str, options: Mapping[str, Any]) -> DataModule:
    """The dataset of a cell, through the encoders its options name; `name` may be its name on the board."""
    return resolve_dataset(name.partition("[")[0], options, name)[0]


def build_method(name: str, options: Mapping[str, Any], task: Task, recipe: Mapping[str, Any]) -> Method:
    """The method of a cell, untrained."""
    cls = methods.get(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the plan has said them once
        return cls(task, Recipe(**recipe), **resolve(name, cls, options, name))


@contextmanager
def undrawn() -> Iterator[None]:
    """Weights without memory are not drawn: nobody will see them.

    The drawing alone, by functions that know not to do anything on the meta device, took half of a plan's time.
    """
    drawn = {name: getattr(nn.init, name) for name in _DRAWS}
    for name, function in drawn.items():
        setattr(nn.init, name, _unless_meta(function))
    try:
        yield
    finally:
        for name, function in drawn.items():
            setattr(nn.init, name, function)


_DRAWS = (
    "constant_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
)


def _unless_meta(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def drawn(tensor: Tensor, *arguments: Any, **more: Any) -> Tensor:
        return tensor if tensor.is_meta else draw(tensor, *arguments, **more)

    return drawn


def resolve_dataset(name: str, given: Mapping[str, Any], where: str) -> tuple[DataModule, dict[str, Any]]:
    """A dataset and its options: its own, filled in with defaults, then what any dataset may have.

    These are `absent`, the rates at which modalities of training rows go, and the encoders of its modalities.
    """
    cls = datasets.get(name)
    own, encoders = divide(cls, given)
    options = resolve(name, cls, own, where)
    datamodule: DataModule = cls(**options)
    if "absent" in encoders:
        try:
            rates = convert("absent", hints(Incomplete)["absent"], encoders.pop("absent"))
            incomplete = Incomplete(datamodule, absent=rates)
        except ValueError as error:
            raise UsageError(f"{name}: {error} ({where})") from None
        if incomplete.absent:  # rates of 0 are the dataset itself, and its cells
            datamodule, options = incomplete, {**options, "absent": incomplete.absent}
    if not encoders:
        return datamodule, options
    switches = {"freeze": True, "standardise": True}
    # An encoder is written as a string.
    wanted = {**dict.fromkeys(datamodule.task.names, str), **dict.fromkeys(switches, bool)}
    for key, value in encoders.items():
        if key not in wanted:
            known = (*parameters(cls), *wanted, "absent")
            raise UsageError(f"{name}: no option `{key}`. {did_you_mean(key, known)} ({where})")
        try:
            convert(key, wanted[key], value)
        except ValueError as error:
            raise UsageError(f"{name}: {error} ({where})") from None
    chosen = {key: encoders.pop(key, default) for key, default in switches.items()}
    if not encoders:
        said, places = next(key for key in switches if key in given), " or ".join(datamodule.task.names)
        raise UsageError(f"{name}: `{said}` needs an encoder for {places} ({where})")
    shown = {**options, **encoders} | {key: on for key, on in chosen.items() if not on}
    return Features(datamodule, encoders, **chosen), shown
