"""What a method owes to everybody else: an honest signature, stations of the agreed shapes, and fits that work."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmark.conformance.case import RECIPE, Case, answer
from benchmark.conformance.probe import PROBES, Probe
from benchmark.conformance.report import Doubtful, Result, require, run_check, where
from benchmark.conformance.training import check_fit, check_gradients
from benchmark.options import plain, resolve
from datamodules.options import hints, parameters
from methods.base import Method
from methods.registry import methods


def check_method(name: str, probes: tuple[str, ...] = PROBES) -> list[Result]:
    """Every check of the method: its defaults on every probe, its other `checked` options on the first they apply to.

    What fails for one cause is said once, not on every probe.
    """
    cls = methods.get(name)
    own = {inspect.getfile(c) for c in cls.__mro__ if issubclass(c, Method) and c.__module__ != Method.__module__}
    results = [run_check("signature", "", lambda: _check_signature(cls), own=own)]
    if not results[0].passed:
        return results
    said: set[str] = set()
    for given in ({}, *filter(None, getattr(cls, "checked", ()))):
        applied = 0
        for probe, variant, case in _cases(name, cls, given, probes):
            applied += 1
            for check, function in METHOD_CHECKS.items():
                result = run_check(check, probe, lambda f=function, c=case: f(c), variant, own)
                is_clean = result.passed and not result.warning
                if is_clean or result.cause not in said:
                    results.append(result)
                if not is_clean:
                    said.add(result.cause)
                if not result.passed:
                    break  # what follows would fail for the same reason
        why = "" if applied else "`applies_to` refuses every probe task"
        results.append(Result("applies", "", applied > 0, why, _spell(given)))
    return results


def _cases(
    name: str, cls: type[Method], given: Mapping[str, Any], probes: tuple[str, ...]
) -> Iterator[tuple[str, str, Case]]:
    """Probe, options in words, and what is checked."""
    for probe in probes:
        datamodule, applied = Probe(shape=probe), False
        for variant in cls.variants(datamodule.task):
            chosen = {**variant, **given}
            options = resolve(name, cls, chosen, "checked")
            if cls.applies_to(datamodule.task, options) is None:
                applied = True
                yield probe, _spell(chosen), Case(cls, options, datamodule, is_default=not given)
        if given and applied:
            return


def _spell(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={plain(value)}" for key, value in options.items())


def _check_signature(cls: type) -> None:
    given = list(inspect.signature(cls.__init__).parameters.values())[1:]
    names = [p.name for p in given if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    place = where(cls.__init__)
    require(
        names == ["task", "recipe"],
        f"`__init__` must take (self, task, recipe, *, own hyper-parameters), got positional {names}: "
        f"the recipe is shared by all methods, what is yours is keyword-only{place}",
    )
    missing = [n for n, p in parameters(cls).items() if p.default is inspect.Parameter.empty]
    require(not missing, f"hyper-parameters {missing} have no default: a bare name in a matrix must work{place}")
    bare = [n for n in parameters(cls) if n not in hints(cls)]
    require(not bare, f"hyper-parameters {bare} have no annotation, so nothing can check their values{place}")


def _check_shapes(case: Case) -> None:
    """Station by station, so that the first that is wrong is the one that is named."""
    method, batch, rows = case.build().eval(), case.batch(6), 6
    tokens = method.tokenize(batch.inputs, batch.present)
    for name, (x, grid, _) in tokens.items():
        require(
            x.dim() == 3 and x.shape[1] == math.prod(grid),
            f"`encode` must return tokens [B, L, D], L = cells of the grid, got {list(x.shape)} and {grid} for "
            f"{name!r}{where(method.encode)}",
        )
    z = method.pool(tokens, batch.present)
    said = f" (`encoding_width` says {method.encoding_width}: define it)"
    _require_shape("pool", z, (rows, len(case.task.modalities), method.encoding_width), method.pool, said)
    fused = method.fuse(z, batch.present)
    # Who predicts otherwise than by the base's head may fuse to any width.
    usual = method.head if type(method).predict is Method.predict else None
    width = None if usual is None else usual.in_features
    _require_shape("fuse", fused, (rows, width), method.fuse)
    if case.task.num_outputs:
        hint = " (pass `fused_dim` to `super().__init__`, or return logits from `fuse`)"
        _require_shape("predict", method.predict(fused), (rows, case.task.num_outputs), method.predict, hint)


def _require_shape(
    station: str, x: Tensor, wanted: tuple[int | None, ...], function: Callable[..., Any], hint: str = ""
) -> None:
    letters = {2: "BF", 3: "BMD"}[len(wanted)]
    said = ", ".join(["B", *(str(n or letter) for n, letter in zip(wanted[1:], letters[1:], strict=True))])
    fits = len(x.shape) == len(wanted) and all(w in (None, n) for n, w in zip(x.shape, wanted, strict=True))
    require(fits, f"`{station}` must return [{said}], got {list(x.shape)}{hint}{where(function)}")


class _Shares(TorchFunctionMode):
    """The sizes of what softmaxes and means are taken over."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dim = (kwargs or {}).get("dim", args[1] if len(args) > 1 else None)
        if func.__name__ in ("softmax", "mean") and isinstance(dim, int):
            self.sizes.add(args[0].shape[dim])
        return func(*args, **(kwargs or {}))


def _check_present(case: Case) -> None:
    """Absent modalities have no weight, nor a share in a softmax or mean of who never looks at `present`."""
    method, batch, count = case.build().eval(), case.batch(8), len(case.task.modalities)
    is_blind, shares = True, _Shares()
    for m in range(count):
        present = batch.present.clone()
        present[::2, m] = False
        everyone = torch.ones_like(present)
        out = answer(method, batch._replace(present=present))
        with torch.no_grad(), shares:
            weights, untold = method.weights(out.z, present), method.fuse(out.z, everyone)
        is_blind &= torch.equal(untold, out.fused)
        if weights is not None:
            _require_shape("weights", weights.unsqueeze(-1), (8, count, 1), method.weights)
            require(
                bool((weights[~present] == 0).all()),
                f"`weights` must be 0 where `present` is False: mask with -inf before a softmax{where(method.weights)}",
            )
    if is_blind and count in shares.sizes:
        raise Doubtful(
            "`fuse` takes a softmax or a mean over modalities and never looks at `present`: absent ones, which are "
            f"zeros, have their share. Mask them{where(method.fuse)}"
        )


def _check_meta(case: Case) -> None:
    with torch.device("meta"):
        method = case.cls(case.task, RECIPE, **case.options).train(False)
    batch = case.batch(4)
    with torch.no_grad():
        out = method({n: x.to("meta") for n, x in batch.inputs.items()}, batch.present.to("meta"))
    require(
        out.logits.device.type == "meta",
        f"a forward on the meta device ended on {out.logits.device}: create tensors on the device of their inputs",
    )


# The cheapest first: after one that fails, the others are not run.
METHOD_CHECKS: dict[str, Callable[[Case], str | None]] = {
    "shapes": _check_shapes,
    "present": _check_present,
    "meta": _check_meta,
    "gradients": check_gradients,
    "fit": check_fit,
}
