"""Centres that move on a sphere: the descent that studies of regularisers share."""

from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor], Tensor]


def descent(objective: Objective, W: Tensor, rate: float, steps: int) -> Callable[[], None]:
    """What takes the next step: Adam, cosine-decayed over `steps`, with a retraction to the sphere.

    Args:
        objective: To be minimised.
        W: A leaf of unit rows, which every step changes.
        rate: Of the first step.
        steps: After which the rate is 0.
    """
    optimizer = torch.optim.Adam([W], lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def step() -> None:
        optimizer.zero_grad()
        objective(W).backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            W.div_(W.norm(dim=1, keepdim=True))

    return step
