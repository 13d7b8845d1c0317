"""What a method owes to everybody else."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmark.conformance.probe import PROBES, Probe
from benchmark.conformance.report import Result, require, run_check
from benchmark.options import parameters
from benchmark.seeds import seed_all
from benchmark.trainer import Encodings, fit
from datamodules.base import DataModule
from datamodules.spec import Batch
from methods.base import Method, Output, Recipe, Stage
from methods.registry import methods

RECIPE = Recipe(width=8, epochs=1, batch_size=64, lr=1e-2, patience=1)


def check_method(name: str, probes: tuple[str, ...] = PROBES) -> list[Result]:
    """Every check of the method, with its default options, on every probe it applies to."""
    cls = methods.get(name)
    results = [run_check("signature", "", lambda: _check_signature(cls))]
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
                results.append(run_check(check, probe, lambda f=function, d=datamodule, v=variant: f(cls, v, d)))
    results.append(Result("applies", "", applied > 0, "" if applied else "`applies_to` refuses every probe task"))
    return results


def _check_signature(cls: type) -> None:
    given = list(inspect.signature(cls.__init__).parameters.values())[1:]
    names = [p.name for p in given if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    require(
        names == ["task", "recipe"],
        f"`__init__` must take (self, task, recipe, *, own hyper-parameters), got positional {names}: "
        "the recipe is shared by all methods, what is yours is keyword-only",
    )
    missing = [n for n, p in parameters(cls).items() if p.default is inspect.Parameter.empty]
    require(not missing, f"hyper-parameters {missing} have no default: a bare name in a matrix must work")


def _build(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> Method:
    seed_all("conformance", 0)
    return cls(datamodule.task, RECIPE, **variant)


def _batch(datamodule: DataModule, rows: int = 64) -> Batch:
    return datamodule.ordered("train").take(slice(0, rows))


def _check_shapes(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> None:
    task, batch = datamodule.task, _batch(datamodule, 6)
    out = _build(cls, variant, datamodule).eval()(batch.inputs, batch.present)
    for name, tokens in out.tokens.items():
        require(
            tokens.x.dim() == 3 and tokens.x.shape[1] == math.prod(tokens.grid),
            f"tokens of {name!r} must be [B, L, D], L = cells of the grid, got {tuple(tokens.x.shape)}, {tokens.grid}",
        )
    require(out.z.shape[:2] == (6, len(task.modalities)), f"`pool` must return [B, M, D], got {tuple(out.z.shape)}")
    require(out.fused.dim() == 2 and len(out.fused) == 6, f"`fuse` must return [B, F], got {tuple(out.fused.shape)}")
    if task.num_outputs:
        expected = (6, task.num_outputs)
        require(
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
    require(bool(terms), f"stage {stage.name!r} has no loss: it is `terms` without terms")
    for name, value in terms.items():
        require(value.dim() == 0, f"loss term {name!r} must be a scalar, got shape {tuple(value.shape)}")
        require(bool(value.isfinite()), f"loss term {name!r} of stage {stage.name!r} is not finite")
    loss = torch.stack([value.float() for value in terms.values()]).sum()
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
        require(
            torch.equal(value, again.state_dict()[name]),
            f"`{name}` differs between two runs with one seed: draw random numbers from torch's generator, never "
            "from time, ids or hashes",
        )
        if value.is_floating_point():
            require(bool(value.isfinite().all()), f"`{name}` is not finite after one epoch")
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
        require(
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
        require(
            bool(told.logits.isfinite().all()),
            f"logits are not finite where {name!r} is absent: mask softmax logits with -inf, and never all of a row's",
        )
        require(
            torch.equal(told.logits, other.logits),
            f"logits depend on the content of {name!r} where it is absent: use what `encode` is given, and `present`",
        )


def _check_state(cls: type[Method], variant: dict[str, Any], method: Method, datamodule: DataModule) -> None:
    seed_all("conformance", 1)
    other = cls(datamodule.task, RECIPE, **variant)
    other.load_state_dict(method.state_dict())
    batch = _batch(datamodule, 8)
    require(
        torch.equal(_outputs(method, batch).logits, _outputs(other.train(False), batch).logits),
        "a model loaded from the state dict answers differently: something that was fitted or drawn is neither a "
        "parameter nor a buffer",
    )


def _check_residue(method: Method, datamodule: DataModule) -> None:
    def held(module: torch.nn.Module) -> set[tuple[str, int]]:
        return {(k, id(v)) for k, v in vars(module).items() if isinstance(v, Tensor)}

    before = [held(module) for module in method.modules()]
    _outputs(method, _batch(datamodule, 4))
    require(
        before == [held(module) for module in method.modules()],
        "a forward pass leaves tensors on the module: return them in the Output, or compute them in `diagnose`",
    )


def _check_meta(cls: type[Method], variant: dict[str, Any], datamodule: DataModule) -> None:
    with torch.device("meta"):
        method = cls(datamodule.task, RECIPE, **variant).train(False)
    batch = _batch(datamodule, 4)
    with torch.no_grad():
        out = method({n: x.to("meta") for n, x in batch.inputs.items()}, batch.present.to("meta"))
    require(
        out.logits.device.type == "meta",
        f"a forward on the meta device ended on {out.logits.device}: create tensors on the device of their inputs",
    )


METHOD_CHECKS: dict[str, Callable[[type[Method], dict[str, Any], DataModule], str | None]] = {
    "shapes": _check_shapes,
    "gradients": _check_gradients,
    "fit": _check_fit,
    "meta": _check_meta,
}
