"""Modalities as flat vectors, without an encoder: what a linear method can see and a decoder can rebuild."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.spec import Modality, Task
from methods.parts.encoders import Tokens


def flat_width(modality: Modality) -> int:
    """Width of the modality as a vector; a text is a bag of words."""
    return modality.vocabulary if modality.kind == "text" else torch.Size(modality.shape).numel()


def flatten(modality: Modality, x: Tensor) -> Tensor:
    """[B, ...] -> [B, d]; a text becomes its word counts, padding not counted."""
    if modality.kind != "text":
        return x.flatten(1).float()
    counts = torch.zeros(len(x), modality.vocabulary, device=x.device)
    ids = x.long()
    return counts.scatter_add(1, ids, (ids != 0).to(counts.dtype))


class RawViews(nn.Module):
    """The modalities as vectors, padded with zeros to the widest: one token each, nothing to learn."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.modalities = {m.name: m for m in task.modalities}
        self.width = max(flat_width(m) for m in task.modalities)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tokens]:
        """Tokens of whichever modalities are given."""
        flat = {name: flatten(self.modalities[name], x) for name, x in inputs.items()}
        return {name: Tokens(F.pad(x, (0, self.width - x.shape[1])).unsqueeze(1), (1,)) for name, x in flat.items()}
