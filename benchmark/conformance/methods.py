"""What a method owes to everybody else: an honest signature, stations of the agreed shapes, and fits that work."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmark.conformance.case import RECIPE, Case
from benchmark.conformance.presence import check_present
from benchmark.conformance.probe import PROBES, Probe
from benchmark.conformance.report import Result, require, require_shape, run_check, where
from benchmark.conformance.training import check_fit, check_gradients
from benchmark.faults import own_files
from benchmark.options import plain, resolve
from datamodules.options import hints, parameters
from methods.base import Method
from methods.registry import methods


def check_method(name: str, probes: tuple[str, ...] = PROBES) -> list[Result]:
    """Every check of the method: its defaults on every probe, its other `checked` options on the first they apply to.

    What fails for one cause is said once, not on every probe.
    """
    cls = methods.get(name)
    own = own_files(cls)
    results = [run_check("signature", "", lambda: _check_signature(cls), own=own)]
    if not results[0].passed:
        return results
    said: set[str] = set()
    for given in ({}, *filter(None, getattr(cls, "checked", ()))):
        cases: list[tuple[str, str, Case]] = []
        results.append(
            run_check("applies", "", lambda g=given, c=cases: _find(name, cls, g, probes, c), _spell(given), own)
        )
        for probe, variant, case in cases:
            for check, function in METHOD_CHECKS.items():
                result = run_check(check, probe, lambda f=function, c=case: f(c), variant, own)
                is_clean = result.passed and not result.warning
                if is_clean or result.cause not in said:
                    results.append(result)
                if not is_clean:
                    said.add(result.cause)
                if not result.passed:
                    break  # what follows would fail for the same reason
    return results


def _find(
    name: str, cls: type[Method], given: Mapping[str, Any], probes: tuple[str, ...], found: list[tuple[str, str, Case]]
) -> None:
    """What is to be checked, up to the probe on which the method itself fails to say whether it applies."""
    for case in _cases(name, cls, given, probes):
        found.append(case)
    require(bool(found), f"`applies_to` refuses every probe task{where(cls.applies_to)}")


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
    require_shape("pool", z, (rows, len(case.task.modalities), method.encoding_width), method.pool, said)
    fused = method.fuse(z, batch.present)
    # Who predicts otherwise than by the base's head may fuse to any width.
    usual = method.head if type(method).predict is Method.predict else None
    width = None if usual is None else usual.in_features
    require_shape("fuse", fused, (rows, width), method.fuse)
    if case.task.num_outputs:
        hint = " (pass `fused_dim` to `super().__init__`, or return logits from `fuse`)"
        require_shape("predict", method.predict(fused), (rows, case.task.num_outputs), method.predict, hint)


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
    "present": check_present,
    "meta": _check_meta,
    "gradients": check_gradients,
    "fit": check_fit,
}
