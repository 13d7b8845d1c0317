"""Shared datasets: LightningDataModules, the vocabulary of tasks and batches, and corruptions."""

from typing import TYPE_CHECKING

from datamodules.registry import datasets, load_plugin, register

if TYPE_CHECKING:
    from datamodules.base import DataModule, Split

__all__ = ["DataModule", "Split", "datasets", "load_plugin", "register"]


def __getattr__(name: str) -> object:
    # Lazy, so that listing names does not import torch and lightning (seconds).
    if name in __all__:
        from datamodules import base

        return getattr(base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
