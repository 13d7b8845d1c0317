"""Decoders from a code to the modality as a vector (a text as its word counts), and their error."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.spec import Batch, Modality, Task
from methods.parts.coordination import row_mean
from methods.parts.raw_views import flat_width, flatten


def decoders(modalities: Iterable[Modality], code: int, hidden: int) -> nn.ModuleList:
    """One small network per modality, from a code of this width."""
    return nn.ModuleList(
        nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, flat_width(m))) for m in modalities
    )


def rebuilding_error(
    task: Task, decoders: nn.ModuleList, batch: Batch, code: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """Squared error, averaged over features and over the rows that have the modality, summed over modalities.

    Args:
        task: Says what each modality is.
        decoders: One per modality.
        batch: What is to be rebuilt.
        code: (m, rows) -> what the decoder of modality m sees of these rows (a mask of the batch).
    """
    errors = []
    for m, (modality, decode) in enumerate(zip(task.modalities, decoders, strict=True)):
        rows = batch.present[:, m]
        x, rebuilt = flatten(modality, batch.inputs[modality.name][rows]), decode(code(m, rows))
        rebuilt = rebuilt.to(torch.promote_types(rebuilt.dtype, x.dtype))
        errors.append(row_mean(F.mse_loss(rebuilt, x.to(rebuilt.dtype), reduction="none").mean(dim=1)))
    return torch.stack(errors).sum()
