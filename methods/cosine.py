"""Coordination by cosine similarity."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from datamodules.spec import Batch
from methods import register
from methods.functional.coordination import cosine_loss
from methods.parts.coordination import Pairwise
from methods.parts.search import LogUniform, Space


@register("cosine")
class Cosine(Pairwise):
    """Pull paired codes to the same direction: `1 - cos`, beside the task loss.

    Nothing pushes codes apart: without labels (`supervised = false`) a constant code has loss 0, the codes collapse,
    and the record says so. The options are those of `Pairwise`.

    Source: Frome et al., 2013 (with a margin, `contrastive_hinge`).
    """

    family = "coordination"
    search: ClassVar[Mapping[str, Space]] = {"weight": LogUniform(1e-3, 1.0), "probe_rate": LogUniform(1.0, 100.0)}
    checked = ({}, {"supervised": False})

    def pair_loss(self, a: Tensor, b: Tensor, batch: Batch, rows: Tensor) -> Tensor:
        return cosine_loss(a, b)
