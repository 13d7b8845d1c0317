"""The modalities as the columns of one table: what a model that is no network looks at."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from datamodules.corruptions.noise import uniforms
from datamodules.spec import Modality, Task
from methods import Encoded, Method, Recipe, Stage, Tokens
from methods.parts.raw_views import flat_width, flatten

LONGEST = 16  # side of an image, steps of a sequence: longer ones are averaged down to it
SPLIT_KEY = 0x7AB1E  # of the rows that are held out
HELD_OUT = 0.2

Floats = NDArray[np.float64]


class Columns(nn.Module):
    """Each modality as a vector, padded with zeros to the widest; images and sequences averaged to a fixed size."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.modalities = {m.name: m for m in task.modalities}
        self.widths = tuple(_width(m) for m in task.modalities)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tokens]:
        """Tokens of whichever modalities are given."""
        flat = {name: flatten(m := self.modalities[name], _averaged(m, x)) for name, x in inputs.items()}
        widest = max(self.widths)
        return {name: Tokens(F.pad(x, (0, widest - x.shape[1])).unsqueeze(1), (1,)) for name, x in flat.items()}


def _averaged(modality: Modality, x: Tensor) -> Tensor:
    if modality.kind == "image":
        height, breadth = (min(side, LONGEST) for side in modality.shape[1:])
        return x if (height, breadth) == modality.shape[1:] else F.adaptive_avg_pool2d(x, (height, breadth))
    if modality.kind == "sequence" and modality.shape[0] > LONGEST:
        return F.adaptive_avg_pool1d(x.transpose(1, 2), LONGEST)
    return x


def _width(modality: Modality) -> int:
    if modality.kind == "image":
        channels, height, breadth = modality.shape
        return channels * min(height, LONGEST) * min(breadth, LONGEST)
    if modality.kind == "sequence":
        return min(modality.shape[0], LONGEST) * modality.shape[1]
    return flat_width(modality)


class TableMethod(Method):
    """A model of the columns of all modalities, solved for on the training rows and not learnt by gradient.

    `learn_table` fits it, `answer_table` gives its logits. The seed of a cell changes nothing.
    """

    def __init__(self, task: Task, recipe: Recipe) -> None:
        encoders = Columns(task)
        super().__init__(task, recipe, encoders=encoders)
        self.widths = encoders.widths
        self.columns = sum(self.widths)

    @property
    def encoding_width(self) -> int:
        return max(self.widths)

    @abstractmethod
    def learn_table(self, x: Floats, y: NDArray[Any], held_out: NDArray[np.bool_]) -> None:
        """Fit the model to rows `x` [N, F], in which NaN is absent; `held_out` may be used to choose its strength."""

    @abstractmethod
    def answer_table(self, x: Tensor) -> Tensor:
        """Logits of rows [B, F], in which NaN is absent."""

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.answer_table(self.table(z, present))

    def table(self, z: Tensor, present: Tensor) -> Tensor:
        """[B, M, D] -> [B, F]."""
        gone = torch.full((), torch.nan, dtype=z.dtype, device=z.device)
        parts = [torch.where(present[:, m, None], z[:, m, :w], gone) for m, w in enumerate(self.widths)]
        return torch.cat(parts, dim=1)

    def solve(self, train: Iterable[Encoded]) -> None:
        """Fit the model to the training split."""
        batches = list(train)
        x = torch.cat([self.table(one.z, one.present) for one in batches]).cpu().double().numpy()
        y = torch.cat([one.target for one in batches]).cpu().numpy()
        row = torch.cat([one.row for one in batches]).cpu()
        self.learn_table(x, y, (uniforms(SPLIT_KEY, row, (1,)).squeeze(1) < HELD_OUT).numpy())

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(self, name="solve", solve=self.solve),)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        goal = task.goal
        if goal.classifies or goal.numeric or task.target == "multilabel":
            return super().applies_to(task, options)
        return f"needs a class, labels or values for each row, and the target of {task.name} is {task.target}"
