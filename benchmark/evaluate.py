"""The sweep: every condition of a cell from one trained model in one pass over the test rows.

Only what a condition changes is computed again: a corrupted modality is re-encoded alone where the method allows it,
a joint condition reuses the tokens of the single ones, a misaligned row has the clean tokens of another, a missing
modality costs no encoding at all. Memory is that of one batch, of the split's clean tokens if these are few, and of one
compact prediction per row and condition.
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
from datamodules.base import Batches, DataModule, SplitName
from datamodules.corruptions import Draw, catalogue, corruption_key, drop_modalities, severities
from datamodules.corruptions.every import donors
from datamodules.corruptions.noise import remembered
from datamodules.spec import Batch, Modality
from leaderboard.record import Condition, Measured, finite
from methods.base import Method, Output, Tokens

BINS = 15  # equal-mass bins of the expected calibration error
TABLE_BYTES = 2**28  # of a split's clean tokens; of more, misaligned rows are encoded again instead


@dataclass(frozen=True)
class Swept:
    """The measured conditions, and the arrays that go beside the record."""

    conditions: tuple[Measured, ...]
    predictions: dict[str, np.ndarray]


def sweep(
    method: Method,
    datamodule: DataModule,
    conditions: tuple[Condition, ...],
    device: torch.device | None = None,
    split: SplitName = "test",
) -> Swept:
    """Measure a trained method under all conditions."""
    device = device or torch.device("cpu")
    method.to(device).train(False)
    rows = datamodule.ordered(split)
    groups = _grouped(conditions, datamodule)
    tallies = {c.id: _Tally(method, keep_probabilities=c.kind == "clean") for c in conditions}
    with torch.inference_mode():
        table = _clean_table(method, rows, device) if any(c.kind == "misaligned" for c in conditions) else {}
        for batch in rows:
            view = _View(method, datamodule, split, move_data_to_device(batch, device), table)
            for group in groups:
                with remembered():
                    for condition in group:
                        tallies[condition.id].add(*view.under(condition), view.batch.target)
    target, slices, gallery = rows.split.target, rows.split.slices or {}, rows.split.gallery
    measured = tuple(c.measured(**tallies[c.id].measure(target, slices, gallery)) for c in conditions)
    arrays = {"target": target.numpy(), "row": np.arange(rows.rows)}
    if rows.split.group is not None:  # rows of one source are not independent, and no interval may count them so
        arrays["group"] = rows.split.group.numpy()
    for c in conditions:
        arrays.update(tallies[c.id].arrays(c.id, target, gallery))
    return Swept(measured, arrays)


def _grouped(conditions: tuple[Condition, ...], datamodule: DataModule) -> list[list[Condition]]:
    """The conditions in groups that share their noise: the severities of one corruption of one modality.

    The corruptions that the joint condition unites are one group, severity by severity, singles before the joint that
    reuses their tokens: those of one severity are kept.
    """
    united = {(m.name, catalogue(m.kind)[0]) for m in datamodule.raw.modalities}

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


@dataclass
class _View:
    """One batch of test rows, and its tokens under the conditions met so far.

    Attributes:
        table: Clean tokens of the whole split, of some modalities.
    """

    method: Method
    datamodule: DataModule
    split: SplitName
    batch: Batch
    table: Mapping[str, Tokens]
    _clean: dict[str, Tokens] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)  # corrupted modalities of the current severity
    _severity: int = 0

    def under(self, condition: Condition) -> tuple[Output, Tensor]:
        """The output under a condition, and which modalities were present."""
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
        return self.method.complete(tokens, present), present

    def _clean_tokens(self) -> dict[str, Tokens]:
        if not self._clean:
            here = slice(int(self.batch.row[0]), int(self.batch.row[-1]) + 1)  # a split is swept in order
            known = {name: _rows_of(tokens, here) for name, tokens in self.table.items()}
            inputs = {name: x for name, x in self.batch.inputs.items() if name not in known}
            found = known | (self.method.tokenize(inputs, self.batch.present) if inputs else {})
            self._clean = {name: found[name] for name in self.method.task.names if name in found}
        return self._clean

    def _changed(self, condition: Condition) -> dict[str, str]:
        """Modality -> the corruption that befalls it."""
        raw = self.datamodule.raw.modalities
        return {m.name: corruption for m in raw if (corruption := befalling(condition, m)) is not None}

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
            if corruption != catalogue(modality.kind)[0]:
                return made
            self._kept[key] = made
        return self._kept[key]

    def _donors(self, modality: Modality, severity: int) -> Tensor:
        """The row whose input each row has when misaligned."""
        raw = self.datamodule.raw
        key = corruption_key(raw.name, raw.version, self.split, modality.name, "misaligned")
        share = severities("misaligned", modality.kind)[severity - 1]
        assert isinstance(share, float)
        return donors(len(self.table[modality.name].x), share, Draw(key, self.batch.row, modality))

    def _encode_changed(self, name: str, x: Tensor) -> dict[str, Tokens]:
        """Tokens of a corrupted modality; a row that the corruption left alone keeps its clean ones."""
        clean, before = self._clean_tokens().get(name), self.batch.inputs[name]
        # Picking rows out must be worth it. Where it is not, a part of the values mostly shows it, at less cost.
        if clean is None or _changed_rows(x[..., ::4], before[..., ::4]).sum() > 0.8 * len(x):
            return self.method.tokenize({name: x}, self.batch.present)
        changed = _changed_rows(x, before).nonzero().squeeze(1)
        if len(changed) > 0.8 * len(x):
            return self.method.tokenize({name: x}, self.batch.present)
        if not len(changed):
            return {name: clean}
        (made,) = self.method.tokenize({name: x[changed]}, self.batch.present[changed]).values()
        mask = None if clean.mask is None or made.mask is None else clean.mask.index_copy(0, changed, made.mask)
        return {name: clean._replace(x=clean.x.index_copy(0, changed, made.x), mask=mask)}


def _changed_rows(x: Tensor, before: Tensor) -> Tensor:
    return (x != before).flatten(1).any(dim=1)


class _Tally:
    """What has to be remembered of a condition's rows."""

    def __init__(self, method: Method, keep_probabilities: bool) -> None:
        self.method = method
        self.keep_probabilities = keep_probabilities
        self.predicted: list[Tensor] = []
        self.kept: Tensor | None = None
        self.probabilities: list[Tensor] = []
        self.confidence: list[Tensor] = []
        self.correct: list[Tensor] = []
        self.sums: dict[str, Tensor] = {}
        self.rows = 0

    def add(self, out: Output, present: Tensor, target: Tensor) -> None:
        task, method = self.method.task, self.method
        self.rows += len(target)
        self.predicted.append(task.goal.prediction(out).cpu())
        if task.goal.classifies:
            log_p = out.logits.float().log_softmax(dim=-1)
            p = log_p.exp()
            confidence, guess = p.max(dim=-1)
            self.confidence.append(confidence.cpu())
            self.correct.append((guess == target).cpu())
            truth = target.long().unsqueeze(1)
            self._sum("calibration.nll", -log_p.gather(1, truth).sum())
            # |p - onehot|^2 = |p|^2 - 2 p_y + 1
            self._sum("calibration.brier", (p.square().sum(dim=1) - 2 * p.gather(1, truth)[:, 0] + 1).sum())
            if self.keep_probabilities:
                self.probabilities.append(p.cpu())
        weights = method.weights(out.z, present)
        if weights is not None:
            self._sum("weights", weights.float().sum(dim=0))
        for name, value in method.diagnose(out, present).items():
            value = value.float()
            self._sum(f"diagnostics.{name}", value.mean() * len(target))

    def keep(self, target: Tensor, gallery: Tensor | None) -> Tensor:
        """What is kept of each row: the prediction, or the rank of the first right answer, which is found once."""
        if self.kept is None:
            self.kept = self.method.task.goal.kept(torch.cat(self.predicted), target, gallery)
            self.predicted = []
        return self.kept

    def measure(self, target: Tensor, slices: Mapping[str, Tensor], gallery: Tensor | None) -> dict[str, Any]:
        """The fields of the measured condition; a named slice of the rows has the task's own score beside it."""
        task, kept = self.method.task, self.keep(target, gallery)
        metrics = task.goal.scores(kept, target)
        for name, rows in slices.items():
            if rows.any():
                metrics[f"{task.metric}/{name}"] = task.goal.scores(kept[rows], target[rows])[task.metric]
        means: dict[str, Any] = {name: (total / self.rows).tolist() for name, total in self.sums.items()}
        calibration = {n.removeprefix("calibration."): v for n, v in means.items() if n.startswith("calibration.")}
        if self.confidence:
            calibration["ece"] = calibration_error(torch.cat(self.confidence), torch.cat(self.correct))
        return {
            "score": metrics[task.metric],
            "metrics": finite({name: value for name, value in metrics.items() if name != task.metric}),
            "calibration": finite(calibration),
            "weights": tuple(means["weights"]) if "weights" in means else None,
            "diagnostics": finite(
                {n.removeprefix("diagnostics."): v for n, v in means.items() if n.startswith("diagnostics.")}
            ),
        }

    def arrays(self, name: str, target: Tensor, gallery: Tensor | None) -> dict[str, np.ndarray]:
        """What the store keeps of each row."""
        found = {f"pred:{name}": _compact(self.keep(target, gallery).numpy())}
        if self.probabilities:
            found[f"prob:{name}"] = torch.cat(self.probabilities).numpy()
        return found

    def _sum(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """Expected calibration error over bins of equal mass, which no crowd of certain predictions can hide in."""
    order = confidence.argsort()
    bins = zip(confidence[order].tensor_split(BINS), correct[order].float().tensor_split(BINS), strict=True)
    gaps = [abs(float(c.mean() - a.mean())) * len(c) for c, a in bins if len(c)]
    return sum(gaps) / len(confidence)


def _compact(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "i":
        return values.astype(np.min_scalar_type(int(abs(values).max(initial=0)) * -1 - 1))
    return values
