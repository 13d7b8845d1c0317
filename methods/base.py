"""The contract of a method: encode -> pool -> fuse -> predict, fitted in stages; it overrides what is its idea."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from lightning import LightningModule
from lightning.fabric.utilities.apply_func import move_data_to_device
from torch import Tensor, nn

from datamodules.options import check
from datamodules.spec import Batch, Task
from methods.metrics import SplitScore
from methods.parts.distributed import global_batch, world
from methods.parts.encoders import Encoders, Tokens
from methods.parts.search import Space
from methods.stage import Encoded, Output, Recipe, Stage, parameters_of

__all__ = ["Encoded", "Method", "Output", "Recipe", "Stage", "Tokens"]


class Method(LightningModule, ABC):
    """A representation method.

    Subclasses take `(task, recipe, *, own hyper-parameters with defaults)`, call `super().__init__` first and override
    `fuse` (a fusion), `pool` (an attention), `encode` (an exchange), `auxiliary` (a regulariser) or `stages` (a
    training protocol). Everything else is final: overriding it raises TypeError when the class is defined.

    What is absent is zero when a station sees it: the base zeroes absent inputs, tokens and encodings. A method masks
    only where zero is not neutral (a softmax).

    Args:
        fused_dim: Width of what `fuse` returns, for the linear head. None: no head, `fuse` returns logits.
        encoders: Replaces the encoders chosen by the task.
    """

    family: ClassVar[str] = ""
    track: ClassVar[Literal["plain", "augmented"]] = "plain"
    separable: ClassVar[bool] = True  # encode() of a subset of the modalities is legal
    pools_apart: ClassVar[bool] = True  # pool() of a modality looks at no other
    batch_statistic: ClassVar[bool] = False  # the loss is one of a batch, no mean over rows: batches stay large
    # The sets of options that the contract runs: one per branch of the method, the defaults first.
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    # What `polymodal tune` may try of the method's own options, two of them at most. A method with nothing that decides
    # its score, or whose option is what its name says, has none and spends its trials on the shared part.
    search: ClassVar[Mapping[str, Space]] = {}

    _FINAL: ClassVar[tuple[str, ...]] = (
        *("forward", "tokenize", "complete", "completions", "objective", "training_step", "validation_step"),
        *("test_step", "predict_step", "configure_optimizers", "on_train_epoch_start", "on_train_epoch_end"),
        *("on_validation_epoch_end", "in_stage", "train"),
    )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__ != __name__:
            for name in cls._FINAL:
                if name in cls.__dict__:
                    raise TypeError(
                        f"{cls.__name__} overrides `{name}`, which is final: every method is trained and scored alike"
                    )

    def __new__(cls, *args: Any, **options: Any) -> Self:
        check(cls, options)  # here, so that no method has to
        return super().__new__(cls)

    def __init__(
        self, task: Task, recipe: Recipe, fused_dim: int | None = None, encoders: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.task = task
        self.recipe = recipe
        self.encoders = Encoders(task, recipe.width) if encoders is None else encoders
        self.head = None if fused_dim is None else nn.Linear(fused_dim, max(1, task.num_outputs))
        self.augment_seed = 0  # set by the runner from (dataset, seed, stage)
        self._stage: Stage | None = None
        self._score: SplitScore | None = None  # made when there is something to score: most that is built never is
        self._sums: dict[str, Tensor] = {}  # of this epoch's terms
        self._losses: list[tuple[int, Tensor]] = []  # of this epoch, each with its step

    @property
    def encoding_width(self) -> int:
        """D of the encodings `z` [B, M, D] that `pool` returns: what a wrapper puts between `pool` and `fuse` needs."""
        return self.recipe.width

    # ---- stations -------------------------------------------------------------------------------------------------

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        """Tokens of the given modalities."""
        return self.encoders(inputs)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        """One vector per modality: [B, M, D]. The mean over tokens that are not padding."""
        means = {name: t.mean() for name, t in tokens.items()}
        if len(means) < len(self.task.names):
            absent = torch.zeros_like(next(iter(means.values())))
            means = {name: means.get(name, absent) for name in self.task.names}
        return torch.stack([means[name] for name in self.task.names], dim=1)

    @abstractmethod
    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        """[B, M, D] -> [B, F]."""

    def predict(self, fused: Tensor) -> Tensor:
        """[B, F] -> logits [B, O]."""
        return fused if self.head is None else self.head(self._drop(fused, self.head.training))

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """Named loss terms, added to the task loss."""
        return {}

    def weights(self, z: Tensor, present: Tensor) -> Tensor | None:
        """How much each modality counts, [B, M], for methods that weigh modalities: pure, called by `fuse`, audited."""
        return None

    def pace(self, out: Output, batch: Batch) -> Tensor | None:
        """Multiples of the learning rate of each modality's encoder for this step, [M]; None leaves all as they are.

        Called without gradient, on the rows of all ranks. Not a factor of gradients, which AdamW would divide out.
        """
        return None

    def uncertainty(self, out: Output, present: Tensor) -> Tensor | None:
        """How much the method doubts each row, [B], if it tells: audited against its errors under each condition."""
        return None

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        """Numbers of interest per row or per batch; their mean under each condition goes into the record."""
        return {}

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        """Numbers of interest once per cell (held-out correlations, collapse)."""
        return {}

    def progress(self) -> dict[str, float]:
        """Numbers of interest after each epoch (the share of dead channels), for the record's training history."""
        return {}

    def stages(self) -> tuple[Stage, ...]:
        """How the method is fitted."""
        return (Stage(self),)

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        """None if the method can be trained on the task, else the reason why not."""
        return None if task.goal.labelled else f"needs labels, and the rows of a `{task.target}` task have none"

    @classmethod
    def variants(cls, task: Task) -> tuple[dict[str, Any], ...]:
        """The options that a bare name in a matrix expands to on this task."""
        return ({},)

    # ---- final ----------------------------------------------------------------------------------------------------

    def forward(self, inputs: dict[str, Tensor], present: Tensor | None = None) -> Output:
        if present is None:
            first = next(iter(inputs.values()))
            present = torch.ones(len(first), len(self.task.modalities), dtype=torch.bool, device=first.device)
            full = True
        else:
            full = _all_there(present)
        return self.complete(self.tokenize(inputs, present, full), present, full)

    def tokenize(self, inputs: dict[str, Tensor], present: Tensor, full: bool = False) -> dict[str, Tokens]:
        """`encode` with absent inputs zeroed; of a subset of the modalities if `separable`.

        Args:
            full: Nothing is absent, which the caller knows: there is nothing to zero.
        """
        inputs = {name: _cast(x, self.dtype) for name, x in inputs.items()}
        if not full:
            column = self.task.names.index
            inputs = {name: _keep(x, present[:, column(name)]) for name, x in inputs.items()}
        tokens = self.encode(inputs, present)
        if not self.recipe.dropout:
            return tokens
        return {name: t._replace(x=self._drop(t.x, self._learns_encoders())) for name, t in tokens.items()}

    def complete(self, tokens: dict[str, Tokens], present: Tensor, full: bool = False) -> Output:
        """`pool`, `fuse` and `predict` on the tokens that `tokenize` made, the absent ones zeroed; `full` as there."""
        return next(self.completions(tokens, present, (None,), full))

    def completions(
        self, tokens: dict[str, Tokens], present: Tensor, fills: Iterable[Tensor | None], full: bool = False
    ) -> Iterator[Output]:
        """`complete`, for each way to fill absent encodings; what is pooled is pooled once.

        Args:
            fills: Each `[M, D]`, what an absent encoding is; None is zero.
        """
        if not full:
            column = self.task.names.index
            tokens = {name: t._replace(x=_keep(t.x, present[:, column(name)])) for name, t in tokens.items()}
        pooled = self.pool(tokens, present)
        for fill in fills:
            z = pooled if full else _keep(pooled, present, fill)
            fused = self.fuse(z, present)
            yield Output(tokens, z, fused, self.predict(fused))

    def objective(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The named terms whose sum is minimised in the current stage."""
        stage = self._current()
        terms = {"task": self.task.goal.loss(out.logits, batch.target)} if stage.loss == "task" else {}
        for term in (self.auxiliary,) if stage.terms is None else stage.terms:
            terms.update(term(out, batch))
        return terms

    def training_step(self, batch: Batch | Iterator[Batch], batch_idx: int) -> Tensor | None:
        if isinstance(batch, Batch):
            return self._loss(batch)
        # Several steps in one call: what Lightning does around a step costs a small model half as much again. Only our
        # runner asks for it (`benchmark.trainer`), and only where all that is left out here would do nothing.
        loop = self.trainer.fit_loop.epoch_loop
        progress = loop.manual_optimization.optim_step_progress
        (optimizer,) = self.trainer.optimizers
        learned = [p for group in optimizer.param_groups for p in group["params"]]
        before = progress.total.completed
        for one in self._moved(batch):
            loss = self._loss(one)
            for p in learned:  # `zero_grad` without its bookkeeping
                p.grad = None
            loss.backward()
            progress.increment_ready()
            optimizer.step()
            progress.increment_completed()  # which is the trainer's `global_step`
        # The step that loggers write is counted per call, and this call's own is yet to be added.
        loop._batches_that_stepped += progress.total.completed - before - 1
        return None

    def _loss(self, batch: Batch) -> Tensor:
        stage = self._current()
        if stage.augment is not None:
            batch = stage.augment(batch, self.augment_seed + 1 + self.current_epoch)
        out = self(batch.inputs, batch.present)
        # A mean over the rows of equal shares is DDP's to average; what else a term may be is exact on all rows only.
        if world()[1] > 1 and self._has_terms(stage):
            out, batch = global_batch(out, batch)
        terms = self.objective(out, batch)
        loss = torch.stack([t.float() for t in terms.values()]).sum() if len(terms) > 1 else next(iter(terms.values()))
        self._note(terms, loss)
        if self._is_paced():
            with torch.no_grad():
                self._set_pace(self.pace(out, batch))
        return loss

    def validation_step(self, batch: Batch | Iterator[Batch], batch_idx: int) -> None:
        for one in (batch,) if isinstance(batch, Batch) else self._moved(batch):
            self._validate(one)

    def _moved(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Batches that Lightning has not seen, on the method's device."""
        return batches if self.device.type == "cpu" else (move_data_to_device(one, self.device) for one in batches)

    def _validate(self, batch: Batch) -> None:
        stage = self._current()
        if stage.augment is not None:  # one key for all epochs: the noise is fixed by row
            batch = stage.augment(batch, self.augment_seed)
        out = self(batch.inputs, batch.present)
        goal = self.task.goal
        # Retrieval is validated on classes the head has never seen: no loss to compute there.
        losses = {"task_loss": goal.loss(out.logits, batch.target)} if goal.labelled and not goal.ranked else {}
        if stage.select == "loss" or not goal.ranked:
            losses["loss"] = torch.stack([t.float() for t in self.objective(out, batch).values()]).sum()
        self._split_score().update(goal.prediction(out), batch.target, losses)

    def _split_score(self) -> SplitScore:
        if self._score is None:
            with torch.inference_mode(False):  # it is changed in place, and maybe elsewhere than in a validation loop
                self._score = SplitScore(self.task).to(self.device)
        return self._score

    def on_train_epoch_start(self) -> None:
        self._sums, self._losses = {}, []

    def on_train_epoch_end(self) -> None:
        if not self._losses:
            return
        steps, losses = zip(*self._losses, strict=True)
        bad = (~torch.isfinite(torch.stack(losses))).nonzero()
        if len(bad):
            raise FloatingPointError(
                f"{type(self).__name__}: the loss of stage {self._current().name!r} is not finite at step "
                f"{steps[int(bad[0])]} (epoch {self.current_epoch})"
            )

    def on_validation_epoch_end(self) -> None:
        # Too few batches to share: every rank has scored them all.
        score = self._split_score()
        score.sync_on_compute = getattr(self.trainer.val_dataloaders, "shared", True)
        scores = score.compute()
        score.reset()
        self.log_dict({f"val/{name}": value.to(self.device) for name, value in scores.items()}, sync_dist=False)
        # Here, because callbacks (who keep the history) are called before `on_train_epoch_end`, and validation ends an
        # epoch.
        steps = max(1, len(self._losses))
        self.log_dict({f"train/{name}": total / steps for name, total in self._sums.items()}, sync_dist=world()[1] > 1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        recipe, stage = self.recipe, self._current()
        special, groups = set[int](), list[dict[str, Any]]()
        for part, multiple in stage.rates:
            own = [p for p in parameters_of(part) if p.requires_grad]
            special.update(map(id, own))
            groups.append({"params": own, "lr": recipe.lr * multiple, "weight_decay": 0.0})
        if self._is_paced():
            for m, encoder in enumerate(self.modality_encoders()):
                own = [p for p in encoder.parameters() if p.requires_grad and id(p) not in special]
                special.update(map(id, own))
                groups.append({"params": own, "modality": m})
        rest = [p for p in self.parameters() if p.requires_grad and id(p) not in special]
        groups.insert(0, {"params": rest})
        groups = [g for g in groups if g["params"]]
        if not groups:
            raise ValueError(f"{type(self).__name__}: stage {stage.name!r} has nothing to learn by gradient")
        return torch.optim.AdamW(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)

    def train(self, mode: bool = True) -> Method:
        stage = self._stage
        if stage is None or not stage.learn:
            return super().train(mode)
        super().train(False)  # what is frozen stays in eval mode
        for part in stage.learn:
            if isinstance(part, nn.Module):
                part.train(mode)
        return self

    @contextmanager
    def in_stage(self, stage: Stage) -> Iterator[None]:
        """Freeze all but what the stage learns, for as long as the stage lasts."""
        before = [(p, p.requires_grad) for p in self.parameters()]
        learned = {id(p) for part in stage.learn for p in parameters_of(part)}
        for p, was in before:
            p.requires_grad_(was and (not stage.learn or id(p) in learned))
        self._stage = stage
        try:
            yield
        finally:
            self._stage = None
            for p, was in before:
                p.requires_grad_(was)
            self.train(False)

    def _current(self) -> Stage:
        """The running stage; outside of our runner, the only one."""
        if self._stage is None:
            only, *more = self.stages()
            if more:
                raise RuntimeError(
                    f"{type(self).__name__} is fitted in {1 + len(more)} stages: "
                    "use benchmark.trainer.fit(method, datamodule)"
                )
            return only
        return self._stage

    def _drop(self, x: Tensor, learning: bool) -> Tensor:
        # Without a rate nothing is drawn: the numbers are those of a recipe that has no dropout.
        return F.dropout(x, self.recipe.dropout, learning) if self.recipe.dropout else x

    def _learns_encoders(self) -> bool:
        return self.encoders.training

    def modality_encoders(self) -> list[nn.Module]:
        """The encoder of each modality, in order."""
        return [self.encoders.get_submodule(name) for name in self.task.names]

    def _has_terms(self, stage: Stage) -> bool:
        """Whether anything but the mean of the rows' task losses is computed from a batch."""
        return stage.terms is not None or type(self).auxiliary is not Method.auxiliary or self._is_paced()

    def _is_paced(self) -> bool:
        return type(self).pace is not Method.pace

    def _set_pace(self, pace: Tensor | None) -> None:
        """The learning rate of each modality's encoder, for the step that follows."""
        multiples = [1.0] * len(self.task.modalities) if pace is None else pace.tolist()
        for group in self.trainer.optimizers[0].param_groups:
            if "modality" in group:
                group["lr"] = self.recipe.lr * multiples[group["modality"]]

    def _note(self, terms: dict[str, Tensor], loss: Tensor) -> None:
        """Sum the terms on the device; nothing is logged, and nothing waits for the device, in a step."""
        for name, value in terms.items():
            value = value.detach()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._losses.append((self.global_step, loss.detach()))


def _all_there(present: Tensor) -> bool:
    """Whether nothing is absent, where looking is free: a GPU would have to be waited for, and a graph cannot look."""
    return present.device.type == "cpu" and not torch.compiler.is_compiling() and bool(present.all())


def _keep(x: Tensor, present: Tensor, fill: Tensor | None = None) -> Tensor:
    """Zero, or `fill`, where not present; `where`, so that a NaN in absent content cannot leak."""
    if _all_there(present):
        return x
    mask = present.reshape(*present.shape, *([1] * (x.dim() - present.dim())))
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device) if fill is None else fill.to(x.dtype))


def _cast(x: Tensor, dtype: torch.dtype | str) -> Tensor:
    """Floats in the type of the weights, which is not the data's in a double-precision run."""
    if x.dtype == dtype or not x.is_floating_point() or not isinstance(dtype, torch.dtype):
        return x
    return x.to(dtype)
