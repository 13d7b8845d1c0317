"""Concatenation with as many parameters as another method: is it the idea, or the size?"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from datamodules.spec import Task
from methods import Base, Method, Recipe, methods, register
from methods.concat import Concat
from methods.parts.search import Space


@register("concat_matched")
class ConcatMatched(Concat):
    """Concatenation whose hidden layer is as wide as it takes to have the parameters of another method.

    The width is found for the task and recipe at hand, by building the other method where tensors cost nothing. Where
    that one is smaller than a concatenation with one hidden unit, one unit it is.

    Args:
        match: The method whose parameters are counted.
    """

    family = "baseline"
    search: ClassVar[Mapping[str, Space]] = {}  # its width is what it is for

    def __init__(self, task: Task, recipe: Recipe, *, match: Base = Base("transformer")) -> None:
        with torch.device("meta"):
            wanted = _size(match.build(task, recipe))
            one, two = (_size(Concat(task, recipe, hidden=hidden)) for hidden in (1, 2))
        super().__init__(task, recipe, hidden=max(1, 1 + round((wanted - one) / (two - one))))

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        match = options.get("match", Base("transformer"))
        reason = methods.get(match.name).applies_to(task, match.options)
        return super().applies_to(task, options) or (reason and f"`match` = {match.name!r} {reason}")


def _size(method: Method) -> int:
    return sum(p.numel() for p in method.parameters() if p.requires_grad)
