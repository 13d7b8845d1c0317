"""Representation methods: one file each, over one base and a functional core."""

from typing import TYPE_CHECKING

from methods.registry import methods, register

if TYPE_CHECKING:
    from methods.base import Encoded, Method, Output, Recipe, Stage, Tokens
    from methods.wrapper import Base, Wrapper

__all__ = ["Base", "Encoded", "Method", "Output", "Recipe", "Stage", "Tokens", "Wrapper", "methods", "register"]


def __getattr__(name: str) -> object:
    # Lazy, so that listing names does not import torch and lightning (seconds).
    if name in __all__:
        from methods import base, wrapper

        return getattr(wrapper if name in ("Base", "Wrapper") else base, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
