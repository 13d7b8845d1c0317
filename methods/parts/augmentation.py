"""Corrupted training batches for the augmented track: EMMA and its twins train on the very same function."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from datamodules.corruptions import corrupt, joint
from datamodules.corruptions.noise import integers, splitmix64, uniforms
from datamodules.spec import Batch, Modality, Task
from methods.base import Method

CORRUPTED_SHARE = 0.5
# Mild to strong but never the strongest: how a method fares beyond what it was trained on stays measurable.
SEVERITIES = (2, 3, 4)
# One more level means that the mode is gone: a decoder that never missed a mode cannot do without it.
_LEVELS = len(SEVERITIES) + 1
_WORD = (1 << 64) - 1


def augment(task: Task, batch: Batch, key: int, *, drop_only: bool = False) -> Batch:
    """Corrupt half of the rows, in each just under half of its modalities.

    Of the P modalities a row has, exactly floor((P + 1) / 2) stay normal; the others are drawn uniformly. Each of them
    gets the corruption of the joint condition at a random severity, or goes missing. All noise is a function of the
    key and the row, so it does not depend on the batch around it.

    Args:
        task: Says what each input is.
        batch: Left as it is; the returned batch holds new tensors.
        key: Of the noise.
        drop_only: Every drawn modality goes missing (modality dropout).

    Returns:
        The batch with `corrupted` set, also where the modality went missing.
    """
    corrupted = _draw_modes(batch, key)
    level = integers(key, batch.row, corrupted.shape[1:], _LEVELS, stream=1)
    missing = corrupted & (drop_only | (level == _LEVELS - 1))
    inputs = dict(batch.inputs)
    if not drop_only:
        for m, modality in enumerate(task.modalities):
            chosen = torch.where(corrupted[:, m] & ~missing[:, m], level[:, m], -1)
            inputs[modality.name] = _corrupt_rows(task, batch, chosen, modality, key, m)
    return batch._replace(inputs=inputs, present=batch.present & ~missing, corrupted=corrupted)


def _draw_modes(batch: Batch, key: int) -> Tensor:
    """`[B, M]`: floor(P / 2) of the P present modalities, in the rows that are corrupted at all."""
    here = batch.present
    ticket = uniforms(key, batch.row, (here.shape[1] + 1,))
    # Absent modalities queue last, so the first places are uniform among those present.
    place = ticket[:, 1:].masked_fill(~here, 2.0).argsort(dim=1).argsort(dim=1)
    return (place < here.sum(dim=1, keepdim=True) // 2) & (ticket[:, :1] < CORRUPTED_SHARE)


def _corrupt_rows(task: Task, batch: Batch, level: Tensor, modality: Modality, key: int, m: int) -> Tensor:
    """A copy of a modality with the rows of level >= 0 corrupted at that level's severity."""
    x, row = batch.inputs[modality.name], batch.row
    out, name = x.clone(), joint(modality, task.name)
    if name is None:
        return out
    noise_key = splitmix64((splitmix64(key & _WORD) + m + 1) & _WORD)
    for index, severity in enumerate(SEVERITIES):
        rows = (level == index).nonzero().squeeze(1)
        out[rows] = corrupt(
            x[rows], row[rows], name=name, severity=severity, key=noise_key, modality=modality, dataset=task.name
        )
    if modality.encoder == "tokens" and modality.kind == "sequence":  # token features of a text: padding stays padding
        out = out.masked_fill((x == 0).all(dim=-1, keepdim=True), 0.0)
    return out


def closing_loss(base: Method) -> Literal["task", "terms"]:
    """What a stage after the base's own is trained on: its terms alone where these hold the task's loss already."""
    last = base.stages()[-1]
    return "terms" if last.loss == "terms" and base.auxiliary in (last.terms or ()) else "task"


def decoder(method: Method) -> tuple[nn.Parameter, ...]:
    """The parameters between the encodings `z` and the logits: what may adapt to corrupted modes without moving `z`.

    Found by asking the graph rather than by name: an attention method has parameters outside its encoders that belong
    to `z` all the same.
    """
    # In eval mode: a batch of zeros must not enter the statistics of a batch normalisation.
    mode = method.training
    method.train(False)
    like = next(method.parameters())
    z = torch.zeros(2, len(method.task.modalities), method.encoding_width, dtype=like.dtype, device=like.device)
    present = torch.ones(z.shape[:2], dtype=torch.bool, device=like.device)
    parameters = [p for p in method.parameters() if p.requires_grad]
    with torch.enable_grad():
        total = method.predict(method.fuse(z.requires_grad_(), present)).sum()
        reached = torch.autograd.grad(total, parameters, allow_unused=True)
    method.train(mode)
    return tuple(p for p, gradient in zip(parameters, reached, strict=True) if gradient is not None)
