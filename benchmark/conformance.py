"""The conformance kit.

What a method, a dataset and a corruption owe to everybody else. `polymodal check` and our tests run it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from benchmark.options import parameters
from benchmark.probe import PROBES, Probe
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, fit
from datamodules.base import DataModule
from datamodules.corruptions import contract
from datamodules.spec import Batch
from methods.base import Method, Output, Recipe, Stage
from methods.registry import methods

RECIPE = Recipe(width=8, epochs=1, batch_size=64, lr=1e-2, patience=1)


class Broken(AssertionError):
    """A check that fails; the message says what is wrong and how to mend it."""


@dataclass(frozen=True)
class Result:
    """One check of one thing on one probe."""

    check: str
    probe: str
    passed: bool
    detail: str = ""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Broken(message)


# ---- methods ------------------------------------------------------------------------------------------------------


def check_method(name: str, probes: tuple[str, ...] = PROBES) -> list[Result]:
    """Every check of the method, with its default options, on every probe it applies to."""
    cls = methods.get(name)
    results = [_run("signature", "", lambda: _check_signature(cls))]
    if not results[0].passed:
        return results
    applied = 0
    for probe in probes:
        datamodule = Probe(shape=probe)
        for variant in cls.variants(datamodule.task):
            if cls.applies_to(datamodule.task, variant) is not None:
                continue
            applied += 1
            for check, function in METHOD_CHECKS.items():
                results.append(_run(check, probe, lambda f=function, d=datamodule, v=variant: f(cls, v, d)))
    results.append(Result("applies", "", applied > 0, "" if applied else "`applies_to` refuses every probe task"))
    return results


def _run(check: str, probe: str, function: Callable[[], str | None]) -> Result:
    try:
        return Result(check, probe, True, function() or "")
    except Broken as error:
        return Result(check, probe, False, str(error))
    except Exception as error:  # noqa: BLE001 - any error of the checked code is a finding, not ours
        return Result(check, probe, False, f"raised {type(error).__name__}: {error}")


def _check_signature(cls: type) -> None:
    given = list(inspect.signature(cls.__init__).parameters.values())[1:]
    names = [p.name for p in given if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    _require(
        names == ["task", "recipe"],
        f"`__init__` must take (self, task, recipe, *, own hyper-parameters), got positional {names}: "
        "the recipe is shared by all methods, what is yours is keyword-only",
    )
    missing = [n for n, p in parameters(cls).items() if p.default is inspect.Parameter.empty]
    _require(not missing, f"hyper-parameters {missing} have no default: a bare name in a matrix must work")


def _build(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> Method:
    seed_all("conformance", 0)
    return cls(datamodule.task, RECIPE, **variant)


def _batch(datamodule: DataModule, rows: int = 64) -> Batch:
    return datamodule.ordered("train").take(slice(0, rows))


def _check_shapes(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> None:
    task, batch = datamodule.task, _batch(datamodule, 6)
    out = _build(cls, variant, datamodule).eval()(batch.inputs, batch.present)
    for name, tokens in out.tokens.items():
        _require(
            tokens.x.dim() == 3 and tokens.x.shape[1] == math.prod(tokens.grid),
            f"tokens of {name!r} must be [B, L, D], L = cells of the grid, got {tuple(tokens.x.shape)}, {tokens.grid}",
        )
    _require(out.z.shape[:2] == (6, len(task.modalities)), f"`pool` must return [B, M, D], got {tuple(out.z.shape)}")
    _require(out.fused.dim() == 2 and len(out.fused) == 6, f"`fuse` must return [B, F], got {tuple(out.fused.shape)}")
    if task.num_outputs:
        expected = (6, task.num_outputs)
        _require(
            tuple(out.logits.shape) == expected,
            f"logits must be {expected}, got {tuple(out.logits.shape)}: pass `fused_dim`, or return logits from `fuse`",
        )


def _check_gradients(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> str:
    """Finite losses; gradients for all that is learnt; no trainable leaf outside of `parameters()`."""
    method = _build(cls, variant, datamodule)
    names = {id(p): n for n, p in method.named_parameters()}
    touched: set[int] = set()
    for stage in method.stages():
        with stage.method.in_stage(stage):
            if stage.solve is not None:
                with torch.no_grad():
                    stage.solve(Encodings(stage.method, datamodule.ordered("train")))
                continue
            touched |= _step(stage, _batch(datamodule), names)
    frozen = sorted(n for i, n in names.items() if i not in touched)
    return f"never learnt by gradient: {', '.join(frozen)}" if frozen else ""


def _step(stage: Stage, batch: Batch, names: dict[int, str]) -> set[int]:
    method = stage.method.train()
    batch = batch if stage.augment is None else stage.augment(batch, 1)
    terms = method.objective(method(batch.inputs, batch.present), batch)
    _require(bool(terms), f"stage {stage.name!r} has no loss: it is `terms` without terms")
    for name, value in terms.items():
        _require(value.dim() == 0, f"loss term {name!r} must be a scalar, got shape {tuple(value.shape)}")
        _require(bool(value.isfinite()), f"loss term {name!r} of stage {stage.name!r} is not finite")
    loss = torch.stack([value.float() for value in terms.values()]).sum()
    strangers = [leaf for leaf in _leaves(loss) if id(leaf) not in names]
    _require(
        not strangers,
        f"{len(strangers)} trainable tensor(s) of shapes {[tuple(s.shape) for s in strangers]} feed the loss but are "
        "not in `parameters()`: they are never trained, moved or saved. Use nn.Parameter or nn.ParameterList",
    )
    method.zero_grad()
    loss.backward()
    learnt = [p for p in method.parameters() if p.requires_grad]
    without = [names[id(p)] for p in learnt if p.grad is None]
    _require(
        not without,
        f"stage {stage.name!r} learns {without}, but the loss does not depend on them: remove them, or name in "
        "`learn` what the stage is for",
    )
    with torch.no_grad():
        for p in learnt:
            assert p.grad is not None
            p -= 1e-2 * p.grad.clamp(-1, 1)
    return {id(p) for p in learnt}


def _leaves(loss: Tensor) -> Iterator[Tensor]:
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor) and variable.requires_grad:
            yield variable
        stack.extend(child for child, _ in node.next_functions)


def _trained(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> Method:
    method = _build(cls, variant, datamodule)
    fit(method, datamodule, seed=0)
    return method.train(False)


def _check_fit(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> None:
    """One fast run of every stage, twice: the same bits; then the checks of a trained model."""
    method, again = _trained(cls, variant, datamodule), _trained(cls, variant, datamodule)
    for name, value in method.state_dict().items():
        _require(
            torch.equal(value, again.state_dict()[name]),
            f"`{name}` differs between two runs with one seed: draw random numbers from torch's generator, never "
            "from time, ids or hashes",
        )
        if value.is_floating_point():
            _require(bool(value.isfinite().all()), f"`{name}` is not finite after one epoch")
    _check_rows(method, datamodule)
    _check_absent(method, datamodule)
    _check_state(cls, variant, method, datamodule)
    _check_residue(method, datamodule)


def _outputs(method: Method, batch: Batch) -> Output:
    with torch.no_grad():
        return method(batch.inputs, batch.present)


def _check_rows(method: Method, datamodule: DataModule) -> None:
    whole, batches = _outputs(method, _batch(datamodule, 9)), datamodule.ordered("train")
    for row in (0, 4, 8):
        alone = _outputs(method, batches.take(slice(row, row + 1)))
        _require(
            torch.allclose(alone.logits[0], whole.logits[row], atol=1e-4, rtol=1e-4),
            "in eval mode a row's logits depend on the other rows of its batch: do not use batch statistics in "
            "`encode`, `pool` or `fuse`",
        )


def _check_absent(method: Method, datamodule: DataModule) -> None:
    batch = _batch(datamodule, 8)
    for m, name in enumerate(method.task.names):
        present = batch.present.clone()
        present[::2, m] = False
        x = batch.inputs[name].clone()
        garbage = x.roll(1, dims=0) if not x.is_floating_point() else torch.full_like(x, torch.nan)
        x[::2] = garbage[::2]
        told = _outputs(method, batch._replace(present=present))
        other = _outputs(method, batch._replace(present=present, inputs={**batch.inputs, name: x}))
        _require(
            bool(told.logits.isfinite().all()),
            f"logits are not finite where {name!r} is absent: mask softmax logits with -inf, and never all of a row's",
        )
        _require(
            torch.equal(told.logits, other.logits),
            f"logits depend on the content of {name!r} where it is absent: use what `encode` is given, and `present`",
        )


def _check_state(cls: type[Method], variant: dict[str, Any], method: Method, datamodule: DataModule) -> None:
    seed_all("conformance", 1)
    other = cls(datamodule.task, RECIPE, **variant)
    other.load_state_dict(method.state_dict())
    batch = _batch(datamodule, 8)
    _require(
        torch.equal(_outputs(method, batch).logits, _outputs(other.train(False), batch).logits),
        "a model loaded from the state dict answers differently: something that was fitted or drawn is neither a "
        "parameter nor a buffer",
    )


def _check_residue(method: Method, datamodule: DataModule) -> None:
    def held(module: torch.nn.Module) -> set[tuple[str, int]]:
        return {(k, id(v)) for k, v in vars(module).items() if isinstance(v, Tensor)}

    before = [held(module) for module in method.modules()]
    _outputs(method, _batch(datamodule, 4))
    _require(
        before == [held(module) for module in method.modules()],
        "a forward pass leaves tensors on the module: return them in the Output, or compute them in `diagnose`",
    )


def _check_meta(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> None:
    with torch.device("meta"):
        method = cls(datamodule.task, RECIPE, **variant).train(False)
    batch = _batch(datamodule, 4)
    with torch.no_grad():
        out = method({n: x.to("meta") for n, x in batch.inputs.items()}, batch.present.to("meta"))
    _require(
        out.logits.device.type == "meta",
        f"a forward on the meta device ended on {out.logits.device}: create tensors on the device of their inputs",
    )


METHOD_CHECKS: dict[str, Callable[[type[Method], dict[str, Any], DataModule], str | None]] = {
    "shapes": _check_shapes,
    "gradients": _check_gradients,
    "fit": _check_fit,
    "meta": _check_meta,
}


# ---- datasets -----------------------------------------------------------------------------------------------------


def check_dataset(name: str, cls: type[DataModule]) -> list[Result]:
    """Every check of the dataset with its default options."""
    datamodule = cls()
    return [_run(check, name, lambda f=function: f(datamodule)) for check, function in DATASET_CHECKS.items()]


def _check_facts(datamodule: DataModule) -> None:
    for fact in ("version", "licence", "citation", "source"):
        _require(bool(getattr(datamodule, fact)), f"state the `{fact}`: a user must know before trusting the numbers")


def _check_splits(datamodule: DataModule) -> None:
    task = datamodule.task
    _require(
        set(datamodule.splits) == {"train", "val", "test"},
        f"splits must be train, val, test, got {list(datamodule.splits)}",
    )
    for name, split in datamodule.splits.items():
        rows = len(split.target)
        _require(rows > 0, f"split {name!r} is empty")
        for m in task.modalities:
            x = split.inputs[m.name]
            _require(
                tuple(x.shape) == (rows, *m.shape),
                f"{name}/{m.name}: declared {(rows, *m.shape)}, got {tuple(x.shape)}",
            )
            sample = x[torch.arange(min(rows, 2000))]
            if m.kind == "text":
                _require(
                    not sample.is_floating_point(), f"{name}/{m.name}: token ids must be integers, got {sample.dtype}"
                )
                _require(
                    int(sample.min()) >= 0 and int(sample.max()) < m.vocabulary, f"{name}/{m.name}: ids out of range"
                )
            else:
                _require(sample.dtype == torch.float32, f"{name}/{m.name}: must be float32, got {sample.dtype}")
                _require(bool(sample.isfinite().all()), f"{name}/{m.name}: has values that are not finite")
            if m.kind == "image" and m.range is not None:
                low, high = m.range
                _require(bool((sample >= low - 1e-4).all() and (sample <= high + 1e-4).all()),
                         f"{name}/{m.name}: values leave the declared range {m.range}")  # fmt: skip
        if split.present is not None:
            _require(bool(split.present.any(dim=1).all()), f"{name}: a row has no modality present")


def _check_target(datamodule: DataModule) -> None:
    task = datamodule.task
    for name, split in datamodule.splits.items():
        y = split.target
        if task.target == "multiclass":
            _require(not y.is_floating_point() and int(y.min()) >= 0 and int(y.max()) < task.num_outputs,
                     f"{name}: classes must be 0..{task.num_outputs - 1}")  # fmt: skip
        elif task.target in ("multilabel", "regression"):
            _require(
                y.dim() == 2 and y.shape[1] == task.num_outputs, f"{name}: targets must be [N, {task.num_outputs}]"
            )
        elif task.target == "answers":
            _require(y.dim() == 3 and y.shape[1] == 2, f"{name}: targets must be [N, 2, K], ids and scores of answers")
            ids, scores = y.unbind(dim=1)
            _require(bool((ids >= 0).all() and (ids < task.num_outputs).all() and (ids == ids.floor()).all()),
                     f"{name}: answers must be 0..{task.num_outputs - 1}")  # fmt: skip
            _require(bool(((scores >= 0) & (scores <= 1)).all()), f"{name}: scores of answers must be 0 to 1")
        if y.is_floating_point():
            _require(bool(y.isfinite().all()), f"{name}: targets are not finite")
    if task.target == "retrieval":
        seen, tested = (set(datamodule.splits[s].target.tolist()) for s in ("train", "test"))
        _require(not seen & tested, "retrieval is tested on classes of the training split")


def _check_disjoint(datamodule: DataModule) -> None:
    """No row, and no source of rows, in two splits."""
    seen: dict[Any, set[int]] = {name: set(_row_hashes(datamodule, name)) for name in datamodule.splits}
    for a, b in combinations(seen, 2):
        shared = len(seen[a] & seen[b])
        _require(shared == 0, f"{shared} row(s) are in both {a} and {b}")
        groups = [datamodule.splits[s].group for s in (a, b)]
        if groups[0] is not None and groups[1] is not None:
            both = set(groups[0].tolist()) & set(groups[1].tolist())
            _require(not both, f"sources {sorted(both)[:5]} have rows in both {a} and {b}")


def _row_hashes(datamodule: DataModule, split: Any) -> Iterator[int]:
    for batch in datamodule.ordered(split):
        parts = [x.flatten(1).contiguous().numpy() for x in batch.inputs.values()]
        yield from (hash(tuple(p[i].tobytes() for p in parts)) for i in range(len(batch.row)))


def _check_same(datamodule: DataModule) -> None:
    print_ = datamodule.fingerprint()
    again = type(datamodule)()
    _require(print_ == again.fingerprint(), "two loads give different rows: fix every seed by the version")
    recorded = datamodule.sha256
    _require(
        not recorded or recorded == print_,
        f"the rows changed (sha256 {print_}, recorded {recorded}): bump `version` and record the new hash",
    )


def _check_trains(datamodule: DataModule) -> None:
    for cls in (methods.get("concat"), methods.get("unimodal")):
        if cls.applies_to(datamodule.task, {}) is None:
            method = cls(datamodule.task, RECIPE)
            batch = datamodule.train_dataloader().take(torch.arange(min(64, len(datamodule.splits["train"].target))))
            out = method(batch.inputs, batch.present)
            _require(bool(out.logits.isfinite().all()), f"{cls.__name__} gives logits that are not finite")


DATASET_CHECKS: dict[str, Callable[[DataModule], str | None]] = {
    "facts": _check_facts,
    "splits": _check_splits,
    "target": _check_target,
    "disjoint": _check_disjoint,
    "same": _check_same,
    "trains": _check_trains,
}


# ---- corruptions --------------------------------------------------------------------------------------------------


def check_corruption(name: str) -> list[Result]:
    """Every check of the corruption on every kind it is for."""
    broken = [Result("corruption", name, False, violation) for violation in contract.check(name)]
    return broken or [Result("corruption", name, True)]
