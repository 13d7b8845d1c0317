"""What a method owes to everybody else in training: what it learns, and what it is afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from benchmark.conformance.case import Case, answer
from benchmark.conformance.report import require, where
from benchmark.trainer import Encodings, fit
from datamodules.spec import Batch
from methods.base import Method, Output, Stage


def check_gradients(case: Case) -> str:
    """Finite losses; gradients for all that is learnt; no trainable leaf outside of `parameters()`."""
    method = case.build()
    names = {id(p): n for n, p in method.named_parameters()}
    touched: set[int] = set()
    for stage in _stages(method):
        with stage.method.in_stage(stage):
            if stage.solve is not None:
                with torch.no_grad():
                    stage.solve(Encodings(stage.method, case.datamodule.ordered("train")))
                continue
            touched |= _step(stage, case.batch(), names)
    frozen = sorted(n for i, n in names.items() if i not in touched)
    return f"never learnt by gradient: {', '.join(frozen)}" if frozen else ""


def _stages(method: Method) -> tuple[Stage, ...]:
    stages, place = method.stages(), where(method.stages)
    require(
        isinstance(stages, tuple) and bool(stages) and all(isinstance(stage, Stage) for stage in stages),
        f"`stages` must return a tuple of `Stage`s, got {type(stages).__name__}{place}",
    )
    for stage in stages:
        require(
            stage.terms is None or isinstance(stage.terms, tuple),
            f"`terms` of stage {stage.name!r} must be a tuple of functions (output, batch) -> dict, got a "
            f"{type(stage.terms).__name__}: write `terms=(f,)`{place}",
        )
    return stages


def _step(stage: Stage, batch: Batch, names: dict[int, str]) -> set[int]:
    method = stage.method.train()
    batch = batch if stage.augment is None else stage.augment(batch, 1)
    out = method(batch.inputs, batch.present)
    _require_terms(stage, out, batch)
    loss = torch.stack([value.float() for value in method.objective(out, batch).values()]).sum()
    strangers = [leaf for leaf in _leaves(loss) if id(leaf) not in names]
    require(
        not strangers,
        f"{len(strangers)} trainable tensor(s) of shapes {[tuple(s.shape) for s in strangers]} feed the loss but are "
        "not in `parameters()`: they are never trained, moved or saved. Use nn.Parameter or nn.ParameterList",
    )
    method.zero_grad()
    loss.backward()
    learnt = [p for p in method.parameters() if p.requires_grad]
    without = [names[id(p)] for p in learnt if p.grad is None]
    require(
        not without,
        f"stage {stage.name!r} learns {without}, but the loss does not depend on them: remove them, or name in "
        "`learn` what the stage is for",
    )
    with torch.no_grad():
        for p in learnt:
            assert p.grad is not None
            p -= 1e-2 * p.grad.clamp(-1, 1)
    return {id(p) for p in learnt}


def _require_terms(stage: Stage, out: Output, batch: Batch) -> None:
    """Every loss term is a finite scalar with a name."""
    for function in (stage.method.auxiliary,) if stage.terms is None else stage.terms:
        terms, name, place = function(out, batch), getattr(function, "__name__", "a term"), where(function)
        require(
            isinstance(terms, Mapping) and all(isinstance(value, Tensor) for value in terms.values()),
            f"`{name}` must return a dict of named loss terms, got a {type(terms).__name__}: "
            f'return {{"name": loss}}{place}',
        )
    terms = stage.method.objective(out, batch)
    require(bool(terms), f"stage {stage.name!r} has no loss: it is `terms` without terms")
    for name, value in terms.items():
        require(value.dim() == 0, f"loss term {name!r} must be a scalar, got shape {list(value.shape)}")
        require(bool(value.isfinite()), f"loss term {name!r} of stage {stage.name!r} is not finite")


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


def check_fit(case: Case) -> None:
    """One fast run of every stage, twice with the defaults: the same bits; then the checks of a trained model."""
    method = _trained(case)
    again = _trained(case).state_dict() if case.is_default else {}
    for name, value in method.state_dict().items():
        require(
            name not in again or torch.equal(value, again[name]),
            f"`{name}` differs between two runs with one seed: draw random numbers from torch's generator, never "
            "from time, ids or hashes",
        )
        if value.is_floating_point():
            require(bool(value.isfinite().all()), f"`{name}` is not finite after one epoch")
    _check_rows(method, case)
    _check_absent(method, case)
    _check_state(method, case)
    _check_residue(method, case)


def _trained(case: Case) -> Method:
    method = case.build()
    fit(method, case.datamodule, seed=0)
    return method.train(False)


def _check_rows(method: Method, case: Case) -> None:
    whole, batches = answer(method, case.batch(9)), case.datamodule.ordered("train")
    for row in (0, 4, 8):
        alone = answer(method, batches.take(slice(row, row + 1)))
        require(
            torch.allclose(alone.logits[0], whole.logits[row], atol=1e-4, rtol=1e-4),
            "in eval mode a row's logits depend on the other rows of its batch: do not use batch statistics in "
            "`encode`, `pool` or `fuse`",
        )


def _check_absent(method: Method, case: Case) -> None:
    batch = case.batch(8)
    for m, name in enumerate(method.task.names):
        present = batch.present.clone()
        present[::2, m] = False
        x = batch.inputs[name].clone()
        garbage = x.roll(1, dims=0) if not x.is_floating_point() else torch.full_like(x, torch.nan)
        x[::2] = garbage[::2]
        told = answer(method, batch._replace(present=present))
        other = answer(method, batch._replace(present=present, inputs={**batch.inputs, name: x}))
        require(
            bool(told.logits.isfinite().all()),
            f"logits are not finite where {name!r} is absent: mask softmax logits with -inf, and never all of a row's",
        )
        require(
            torch.equal(told.logits, other.logits),
            f"logits depend on the content of {name!r} where it is absent: use what `encode` is given, and `present`",
        )


def _check_state(method: Method, case: Case) -> None:
    other = case.build(seed=1)
    other.load_state_dict(method.state_dict())
    batch = case.batch(8)
    require(
        torch.equal(answer(method, batch).logits, answer(other.train(False), batch).logits),
        "a model loaded from the state dict answers differently: something that was fitted or drawn is neither a "
        "parameter nor a buffer",
    )


def _check_residue(method: Method, case: Case) -> None:
    def held(module: torch.nn.Module) -> set[tuple[str, int]]:
        return {(k, id(v)) for k, v in vars(module).items() if isinstance(v, Tensor)}

    before = [held(module) for module in method.modules()]
    answer(method, case.batch(4))
    require(
        before == [held(module) for module in method.modules()],
        "a forward pass leaves tensors on the module: return them in the Output, or compute them in `diagnose`",
    )
