"""The sweep: every condition of a cell from one trained model in one pass over the test rows.

Only what a condition changes is computed again: a corrupted modality is re-encoded alone where the method allows it,
a joint condition reuses the tokens of the single ones, a misaligned row has the clean tokens of another, a missing
modality costs no encoding at all, whichever way it is filled. Memory is that of one batch, of the split's clean tokens
if these are few, and of one compact prediction per row and condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor

from benchmark.conditions import befalling
from benchmark.tally import Tally
from datamodules.base import Batches, DataModule, SplitName
from datamodules.corruptions import Draw, corruption_key, drop_modalities, joint, levels
from datamodules.corruptions.every import donors
from datamodules.corruptions.noise import remembered
from datamodules.spec import Batch, Modality
from leaderboard.record import Condition, Fill, Measured, is_missing
from methods.base import Method, Output, Tokens

TABLE_BYTES = 2**28  # of a split's clean tokens; of more, misaligned rows are encoded again instead


@dataclass(frozen=True)
class Filling:
    """What stands for the encoding of an absent modality.

    Attributes:
        means: `[M, D]`, mean encodings of the training rows.
        chosen: What predictions and scores are of. The other way is scored beside it, unless the method masks what is
            absent and both are the same.
    """

    means: Tensor
    chosen: Fill

    def ways(self) -> dict[Fill, Tensor | None]:
        """What absent encodings are set to, each way that is scored, the chosen one first."""
        if self.chosen == "mask":
            return {"mask": None}
        both: dict[Fill, Tensor | None] = {"zero": None, "mean": self.means}
        return {self.chosen: both[self.chosen], **both}


@dataclass(frozen=True)
class Swept:
    """The measured conditions, and the arrays that go beside the record.

    Attributes:
        masked: Whether no output of a condition with absent modalities depended on what filled them.
    """

    conditions: tuple[Measured, ...]
    predictions: dict[str, np.ndarray]
    masked: bool = False


def sweep(
    method: Method,
    datamodule: DataModule,
    conditions: tuple[Condition, ...],
    device: torch.device | None = None,
    split: SplitName = "test",
    filling: Filling | None = None,
) -> Swept:
    """Measure a trained method under all conditions.

    Args:
        filling: Of encodings that a condition takes away; None leaves them zero, as they are in training.
    """
    device = device or torch.device("cpu")
    method.to(device).train(False)
    rows = datamodule.ordered(split)
    tallies = {c.id: _tallies(method, c, split, filling) for c in conditions}
    masked = filling is not None
    with torch.inference_mode():
        table = _clean_table(method, rows, device) if any(c.kind == "misaligned" for c in conditions) else {}
        groups = _grouped(conditions, datamodule)
        full = bool(rows.present.all())
        for batch in rows:
            view = _View(method, datamodule, split, move_data_to_device(batch, device), full, table)
            for group in groups:
                with remembered():
                    for condition in group:
                        tokens, present = view.under(condition)
                        ways = tallies[condition.id].values()
                        nothing_absent = full and present is view.batch.present
                        outs = list(method.completions(tokens, present, [fill for fill, _ in ways], nothing_absent))
                        masked = masked and all(_same(method, out, outs[0]) for out in outs[1:])
                        for out, (_, tally) in zip(outs, ways, strict=True):
                            tally.add(out, present, view.batch)
    target, gallery = rows.split.target, rows.split.gallery
    arrays = {"target": target.numpy(), "row": np.arange(rows.rows)}
    if rows.split.group is not None:  # rows of one source are not independent, and no interval may count them so
        arrays["group"] = rows.split.group.numpy()
    measured = []
    for c in conditions:
        (way, (_, chosen)), *others = tallies[c.id].items()
        found = chosen.measure(target, rows.split.slices or {}, gallery)
        fills = {way: found["score"], **{other: tally.score(target, gallery) for other, (_, tally) in others}}
        measured.append(c.measured(**found, fills=fills if filling and is_missing(c) else {}))
        arrays.update(chosen.arrays(c.id, target, gallery))
    return Swept(tuple(measured), arrays, masked)


def _same(method: Method, a: Output, b: Output) -> bool:
    predicted = method.task.goal.prediction
    return torch.equal(a.logits, b.logits) and torch.equal(predicted(a), predicted(b))


def _tallies(
    method: Method, condition: Condition, split: SplitName, filling: Filling | None
) -> dict[Fill, tuple[Tensor | None, Tally]]:
    """What absent encodings are set to under a condition, and the tally of each way, the one that counts first."""
    if filling is None or not is_missing(condition):
        return {"zero": (None, Tally(method, condition.id, split, keep_probabilities=condition.kind == "clean"))}
    return {
        way: (fill, Tally(method, f"{condition.id} ({way} for what is absent)", split))
        for way, fill in filling.ways().items()
    }


def _grouped(conditions: tuple[Condition, ...], datamodule: DataModule) -> list[list[Condition]]:
    """The conditions in groups that share their noise: the severities of one corruption of one modality.

    The corruptions that the joint condition unites are one group, severity by severity, singles before the joint that
    reuses their tokens: those of one severity are kept.
    """
    united = {(m.name, joint(m, datamodule.raw.name)) for m in datamodule.raw.modalities}

    def key(c: Condition) -> tuple[str, str, int, bool]:
        modality, corruption = c.modality or "", c.corruption or c.kind
        if (modality, corruption) in united:
            modality, corruption = "", "joint"
        return modality, corruption, c.severity, c.kind == "joint"

    return [list(group) for _, group in groupby(sorted(conditions, key=key), key=lambda c: key(c)[:2])]


def _clean_table(method: Method, rows: Batches, device: torch.device) -> dict[str, Tokens]:
    """The clean tokens of all rows, of modalities with several.

    None if they take much memory, or if inputs are absent: their tokens are those of zeros. A single token costs as
    little to encode again as to look up, and is then rounded as in any other batch of so many rows.
    """
    if not method.separable or not bool(rows.present.all()):
        return {}
    parts: dict[str, list[Tokens]] = {}
    for batch in rows:
        batch = move_data_to_device(batch, device)
        made = method.tokenize(batch.inputs, batch.present, full=True)
        many = {name: tokens for name, tokens in made.items() if tokens.x.shape[1] > 1}
        if not many or sum(t.x.nbytes for t in many.values()) / len(batch.row) * rows.rows > TABLE_BYTES:
            return {}
        for name, tokens in many.items():
            parts.setdefault(name, []).append(tokens)
    return {name: _joined(found) for name, found in parts.items()}


def _joined(parts: list[Tokens]) -> Tokens:
    masks = [t.mask for t in parts if t.mask is not None]
    return Tokens(torch.cat([t.x for t in parts]), parts[0].grid, torch.cat(masks) if masks else None)


def _rows_of(tokens: Tokens, rows: Tensor | slice) -> Tokens:
    return tokens._replace(x=tokens.x[rows], mask=None if tokens.mask is None else tokens.mask[rows])


class _Shared(Tokens):
    """Tokens that many conditions have in common: their mean is taken once. What `_replace` makes of them has none."""

    def mean(self) -> Tensor:
        known = vars(self)
        if "_mean" not in known:
            known["_mean"] = super().mean()
        return known["_mean"]


@dataclass
class _View:
    """One batch of test rows, and its tokens under the conditions met so far.

    Attributes:
        full: No row of the split lacks a modality of its own.
        table: Clean tokens of the whole split, of some modalities.
    """

    method: Method
    datamodule: DataModule
    split: SplitName
    batch: Batch
    full: bool
    table: Mapping[str, Tokens]
    _clean: dict[str, Tokens] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)  # corrupted modalities of the current severity
    _severity: int = 0

    def under(self, condition: Condition) -> tuple[dict[str, Tokens], Tensor]:
        """The tokens under a condition, and which modalities are present."""
        present = self._present(condition)
        changed = self._changed(condition)
        if self.method.separable:
            tokens = dict(self._clean_tokens())
            for name, corruption in changed.items():
                tokens.update(self._once(name, corruption, condition.severity, encoded=True))
        else:
            inputs = dict(self.batch.inputs)
            for name, corruption in changed.items():
                inputs.update(self._once(name, corruption, condition.severity, encoded=False))
            tokens = self.method.tokenize(inputs, present)
        return tokens, present

    def _clean_tokens(self) -> dict[str, Tokens]:
        if not self._clean:
            here = slice(int(self.batch.row[0]), int(self.batch.row[-1]) + 1)  # a split is swept in order
            known = {name: _rows_of(tokens, here) for name, tokens in self.table.items()}
            inputs = {name: x for name, x in self.batch.inputs.items() if name not in known}
            found = known | (self.method.tokenize(inputs, self.batch.present, self.full) if inputs else {})
            self._clean = {name: _Shared(*found[name]) for name in self.method.task.names if name in found}
        return self._clean

    def _changed(self, condition: Condition) -> dict[str, str]:
        """Modality -> the corruption that befalls it."""
        raw = self.datamodule.raw
        return {m.name: name for m in raw.modalities if (name := befalling(condition, m, raw.name)) is not None}

    def _present(self, condition: Condition) -> Tensor:
        present, task, raw = self.batch.present, self.method.task, self.datamodule.raw
        if condition.rate is not None:
            key = corruption_key(raw.name, raw.version, self.split, "*", "missing")
            # The draw of a modality is the same alone as among all: what one condition drops, the other drops too.
            hit = [condition.modality in (None, name) for name in task.names]
            rate = condition.rate * torch.tensor(hit, device=present.device)
            return drop_modalities(present, self.batch.row, rate, key)
        if condition.absent:
            gone = torch.tensor([name in condition.absent for name in task.names], device=present.device)
            kept = present & ~gone
            # A row of an incomplete test set may have nothing else: no method can be asked about nothing.
            return torch.where(kept.any(dim=1, keepdim=True), kept, present)
        return present

    def _once(self, name: str, corruption: str, severity: int, encoded: bool) -> Mapping[str, Any]:
        """The corrupted modality, encoded or not.

        Kept while the severity lasts if the joint condition needs it again.
        """
        if severity != self._severity:
            self._kept, self._severity = {}, severity
        key = f"{name}/{corruption}"
        if key not in self._kept:
            modality = next(m for m in self.datamodule.raw.modalities if m.name == name)
            if encoded and corruption == "misaligned" and name in self.table:
                return {name: _rows_of(self.table[name], self._donors(modality, severity))}
            x = self.datamodule.corrupted(self.batch, self.split, name, corruption, severity)
            made = self._encode_changed(name, x) if encoded else {name: x}
            if corruption != joint(modality, self.datamodule.raw.name):
                return made
            self._kept[key] = made
        return self._kept[key]

    def _donors(self, modality: Modality, severity: int) -> Tensor:
        """The row whose input each row has when misaligned."""
        raw = self.datamodule.raw
        key = corruption_key(raw.name, raw.version, self.split, modality.name, "misaligned")
        share = levels("misaligned", modality, raw.name)[severity - 1]
        assert isinstance(share, float)
        return donors(len(self.table[modality.name].x), share, Draw(key, self.batch.row, modality))

    def _encode_changed(self, name: str, x: Tensor) -> dict[str, Tokens]:
        """Tokens of a corrupted modality; a row that the corruption left alone keeps its clean ones."""
        clean, before = self._clean_tokens().get(name), self.batch.inputs[name]
        # Picking rows out must be worth it. Where it is not, a part of the values mostly shows it, at less cost.
        if clean is None or _changed_rows(x[..., ::4], before[..., ::4]).sum() > 0.8 * len(x):
            return self.method.tokenize({name: x}, self.batch.present, self.full)
        changed = _changed_rows(x, before).nonzero().squeeze(1)
        if len(changed) > 0.8 * len(x):
            return self.method.tokenize({name: x}, self.batch.present, self.full)
        if not len(changed):
            return {name: clean}
        (made,) = self.method.tokenize({name: x[changed]}, self.batch.present[changed], self.full).values()
        mask = None if clean.mask is None or made.mask is None else clean.mask.index_copy(0, changed, made.mask)
        return {name: clean._replace(x=clean.x.index_copy(0, changed, made.x), mask=mask)}


def _changed_rows(x: Tensor, before: Tensor) -> Tensor:
    return (x != before).flatten(1).any(dim=1)
