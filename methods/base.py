"""The contract of a method.

Encode -> pool -> fuse -> predict, fitted in stages. A method overrides the station that is its idea.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from lightning import LightningModule
from lightning.fabric.utilities.apply_func import move_data_to_device
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count, NonNegative, Positive, check, check_fields
from datamodules.spec import Batch, Task
from methods.metrics import SplitScore
from methods.parts.distributed import global_batch, world
from methods.parts.encoders import Encoders, Tokens
from methods.parts.search import Space
from methods.registry import methods

__all__ = ["Base", "Encoded", "Method", "Output", "Recipe", "Stage", "Tokens", "Wrapper"]


@dataclass(frozen=True)
class Recipe:
    """The training budget, shared by all methods of a matrix on a dataset: fairness is structural.

    Attributes:
        width: D, of every encoder's tokens.
        epochs: At most, per stage.
        batch_size: Global, whatever the number of devices.
        patience: Epochs without a better validation score before a stage ends.
        dropout: Of the encoders' tokens and of the head's input.
    """

    width: Count = 64
    epochs: Count = 30
    batch_size: Count = 128
    lr: Positive = 1e-3
    weight_decay: NonNegative = 1e-4
    patience: Count = 8
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0

    def __post_init__(self) -> None:
        check_fields("recipe", self)


class Output(NamedTuple):
    """Everything a forward pass computed.

    `z` [B, M, D], `fused` [B, F], `logits` [B, O]. Nothing is left on the module.
    """

    tokens: dict[str, Tokens]
    z: Tensor
    fused: Tensor
    logits: Tensor


class Encoded(NamedTuple):
    """A batch of frozen encodings, for closed-form stages and summaries."""

    z: Tensor
    present: Tensor
    target: Tensor
    row: Tensor


@dataclass(frozen=True)
class Stage:
    """One fit: by gradient, or closed-form when `solve` is given.

    Attributes:
        method: Whose stations run and who is fitted.
        learn: What is fitted; empty means all of `method`. Everything else is frozen and in eval mode.
        loss: "terms": the named terms replace the task loss (contrastive, hard gates).
        select: The best epoch is chosen by the validation metric, or by the validation loss when labels are not used;
            "last" takes the last one, for a probe that must not look at validation rows.
        terms: Functions (output, batch) -> named loss terms; None means `method.auxiliary`.
        augment: (batch, key) -> batch, a pure function of both; only on the augmented track.
        solve: Receives a re-iterable stream of the frozen, encoded training split.
        rates: Multiples of the recipe's learning rate for some parameters, which also escape weight decay (proxies).
        stop_early: False runs all epochs: twins that must be compared at equal steps.
        epochs: At most, where the recipe allows more: a probe is short.
    """

    method: Method
    name: str = "train"
    learn: tuple[nn.Module | nn.Parameter, ...] = ()
    loss: Literal["task", "terms"] = "task"
    select: Literal["metric", "loss", "last"] = "metric"
    terms: tuple[Callable[[Output, Batch], dict[str, Tensor]], ...] | None = None
    augment: Callable[[Batch, int], Batch] | None = None
    solve: Callable[[Iterable[Encoded]], None] | None = None
    rates: tuple[tuple[nn.Module | nn.Parameter, float], ...] = ()
    stop_early: bool = True
    epochs: int | None = None


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
    # The sets of options that the contract runs: one per branch of the method, the defaults first.
    checked: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)
    # What `polymodal tune` may try of the method's own options, two of them at most. A method with nothing that decides
    # its score, or whose option is what its name says, has none and spends its trials on the shared part.
    search: ClassVar[Mapping[str, Space]] = {}

    _FINAL: ClassVar[tuple[str, ...]] = (
        "forward",
        "tokenize",
        "complete",
        "objective",
        "training_step",
        "validation_step",
        "test_step",
        "predict_step",
        "configure_optimizers",
        "on_train_epoch_start",
        "on_train_epoch_end",
        "on_validation_epoch_end",
        "in_stage",
        "train",
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
        self._score = SplitScore(task)
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
        if not full:
            column = self.task.names.index
            tokens = {name: t._replace(x=_keep(t.x, present[:, column(name)])) for name, t in tokens.items()}
        z = self.pool(tokens, present)
        if not full:
            z = _keep(z, present)
        fused = self.fuse(z, present)
        return Output(tokens, z, fused, self.predict(fused))

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
        device = self.device
        return batches if device.type == "cpu" else (move_data_to_device(batch, device) for batch in batches)

    def _validate(self, batch: Batch) -> None:
        stage = self._current()
        if stage.augment is not None:  # one key for all epochs: the noise is fixed by row
            batch = stage.augment(batch, self.augment_seed)
        out = self(batch.inputs, batch.present)
        # Retrieval is validated on classes the head has never seen: no loss to compute there.
        has_loss = stage.select == "loss" or not self.task.goal.ranked
        loss = torch.stack([t.float() for t in self.objective(out, batch).values()]).sum() if has_loss else None
        self._score.update(self.task.goal.prediction(out), batch.target, loss)

    def on_train_epoch_start(self) -> None:
        self._sums = {}
        self._losses = []

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
        self._score.sync_on_compute = getattr(self.trainer.val_dataloaders, "shared", True)
        scores = self._score.compute()
        self._score.reset()
        self.log_dict({f"val/{name}": value.to(self.device) for name, value in scores.items()}, sync_dist=False)
        # Here, because callbacks (who keep the history) are called before `on_train_epoch_end`, and validation ends an
        # epoch.
        steps = max(1, len(self._losses))
        self.log_dict({f"train/{name}": total / steps for name, total in self._sums.items()}, sync_dist=world()[1] > 1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        recipe, stage = self.recipe, self._current()
        special: set[int] = set()
        groups: list[dict[str, Any]] = []
        for part, multiple in stage.rates:
            own = [p for p in _parameters(part) if p.requires_grad]
            special.update(map(id, own))
            groups.append({"params": own, "lr": recipe.lr * multiple, "weight_decay": 0.0})
        if self._is_paced():
            for m, encoder in enumerate(modality_encoders(self)):
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
        learned = {id(p) for part in stage.learn for p in _parameters(part)}
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


@dataclass(frozen=True)
class Base:
    """The method a wrapper wraps, by name.

    `base = "low_rank"` or `base = { name = "low_rank", rank = 8 }` in a matrix.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_option(cls, key: str, value: Any) -> Base:
        """As a matrix writes it."""
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            return cls(value["name"], {k: v for k, v in value.items() if k != "name"})
        raise ValueError(f'`{key}` must be a method name or {{ name = "..", .. }}, got {value!r}')

    def build(self, task: Task, recipe: Recipe) -> Method:
        """Construct it."""
        return methods.get(self.name)(task, recipe, **self.options)


class Wrapper(Method):
    """A method around another: every station is the base's until a subclass overrides it."""

    def __init__(self, task: Task, recipe: Recipe, base: Base) -> None:
        # Built before anything else draws a random number: its weights are those of its own cell.
        built = base.build(task, recipe)
        super().__init__(task, recipe, encoders=nn.ModuleDict())
        self.base = built
        self.separable = built.separable  # pyright: ignore[reportAttributeAccessIssue] - a fact of the base's class

    @property
    def encoding_width(self) -> int:
        return self.base.encoding_width

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        return self.base.encode(inputs, present)

    def _learns_encoders(self) -> bool:
        return self.base._learns_encoders()

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        return self.base.pool(tokens, present)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.base.fuse(z, present)

    def predict(self, fused: Tensor) -> Tensor:
        return self.base.predict(fused)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        return self.base.auxiliary(out, batch)

    def weights(self, z: Tensor, present: Tensor) -> Tensor | None:
        return self.base.weights(z, present)

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        return self.base.diagnose(out, present)

    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        return self.base.summary(train, test)

    def progress(self) -> dict[str, float]:
        return self.base.progress()

    def stages(self) -> tuple[Stage, ...]:
        return self.base.stages()

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        base = cls.chosen_base(options)
        return methods.get(base.name).applies_to(task, base.options)

    @classmethod
    def chosen_base(cls, options: Mapping[str, Any]) -> Base:
        """The base of the options, or the default one."""
        return options.get("base", inspect.signature(cls).parameters["base"].default)


def modality_encoders(method: Method) -> list[nn.Module]:
    """The encoder of each modality, in order; of a wrapper, those of its base."""
    while isinstance(method, Wrapper):
        method = method.base
    return [method.encoders.get_submodule(name) for name in method.task.names]


def _all_there(present: Tensor) -> bool:
    """Whether nothing is absent, where looking is free: a GPU would have to be waited for."""
    return present.device.type == "cpu" and bool(present.all())


def _keep(x: Tensor, present: Tensor) -> Tensor:
    """Zero where not present; `where`, so that a NaN in absent content cannot leak."""
    if _all_there(present):
        return x
    mask = present.reshape(*present.shape, *([1] * (x.dim() - present.dim())))
    return torch.where(mask, x, torch.zeros((), dtype=x.dtype, device=x.device))


def _cast(x: Tensor, dtype: torch.dtype | str) -> Tensor:
    """Floats in the type of the weights, which is not the data's in a double-precision run."""
    if x.dtype == dtype or not x.is_floating_point() or not isinstance(dtype, torch.dtype):
        return x
    return x.to(dtype)


def _parameters(part: nn.Module | nn.Parameter) -> list[nn.Parameter]:
    return [part] if isinstance(part, nn.Parameter) else list(part.parameters())
