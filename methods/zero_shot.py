"""Pretrained encoders as they are: nothing is trained."""

from collections.abc import Iterable, Mapping
from typing import Any

from datamodules.spec import Task
from methods import Encoded, Recipe, Stage, register
from methods.parts.coordination import Coordination
from methods.parts.raw_views import RawViews


@register("zero_shot")
class ZeroShot(Coordination):
    """Score images against texts by the cosine of their frozen features, as published; nothing is trained.

    What CLIP does out of the box, and what training on top of it must beat. The features come from the dataset's
    options: `image` and the text modality both `open_clip:MODEL/PRETRAINED`, and `standardise = false`, because
    standardising two modalities apart moves them out of the space they share.

    Source: Radford et al., 2021 (CLIP).
    """

    family = "baseline"

    def __init__(self, task: Task, recipe: Recipe) -> None:
        views = RawViews(task)
        super().__init__(task, recipe, views.width, encoders=views)

    @property
    def encoding_width(self) -> int:
        return self.components

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(self, name="nothing", solve=_leave),)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        if task.goal.labelled:
            return f"compares modalities with each other, and a `{task.target}` task asks for labels"
        shapes = {m.shape for m in task.modalities}
        if len(shapes) == 1 and all(m.kind == "vector" for m in task.modalities):
            return None
        return "needs features of one space: give every modality the same frozen encoder (open_clip:MODEL/PRETRAINED)"


def _leave(stream: Iterable[Encoded]) -> None:
    """What is published stays as it is."""
