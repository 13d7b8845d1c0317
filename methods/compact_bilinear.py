"""Compact bilinear pooling: a random sketch of the outer product, without weights of its own."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional as F

from datamodules.spec import Task
from methods import Method, Recipe, register
from methods.functional.fusion import signed_sqrt, tensor_sketch, with_one
from methods.parts.search import OneOf, Space


@register("compact_bilinear")
class CompactBilinear(Method):
    """Sketch the outer product of all modalities by FFT, then take signed square roots and unit length.

    The hashes and signs are drawn once, independently for each modality, and saved with the model. More than two
    modalities are chained: the sketch of two is convolved with that of the third, and so on.

    Source: Gao et al., 2016; of two modalities Fukui et al., 2016.

    **Differs from the paper**: each encoding gets a constant 1 before it is sketched (`constant = False` for the
    published form), or an absent modality would make the whole product zero: lower-order terms are sketched as well.

    Args:
        sketch: Length of the sketch. The variance of its inner products falls as 1 / sketch.
        constant: Append the constant.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {"sketch": OneOf((128, 256, 512, 1024))}
    checked = ({}, {"sketch": 31, "constant": False})

    def __init__(
        self, task: Task, recipe: Recipe, *, sketch: Annotated[int, Meta(ge=2)] = 512, constant: bool = True
    ) -> None:
        super().__init__(task, recipe, fused_dim=sketch)
        self.sketch = sketch
        self.constant = constant
        shape = (len(task.modalities), recipe.width + int(constant))
        self.hashes: Tensor
        self.signs: Tensor
        self.register_buffer("hashes", torch.randint(sketch, shape))
        self.register_buffer("signs", torch.randint(2, shape) * 2.0 - 1.0)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        x = with_one(z) if self.constant else z
        pooled = tensor_sketch(x.unbind(dim=1), self.hashes.unbind(), self.signs.unbind(), self.sketch)
        return F.normalize(signed_sqrt(pooled), dim=-1)
