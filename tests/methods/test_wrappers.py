"""Every wrapper over every method: it fits, or the plan says why not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark.conformance.case import Case
from benchmark.conformance.probe import PROBES, Probe
from benchmark.conformance.report import run_check
from benchmark.conformance.training import check_gradients
from datamodules.options import parameters
from methods import Base, Wrapper, methods
from tests.methods.conftest import RECIPE, images, task, vectors

WRAPPERS = [name for name in methods.names() if "base" in parameters(methods.get(name))]
ANY = {"augmented", "emma", "modality_dropout"}  # take every base
SOLVED = {"boosting", "linear", "zero_shot"}  # but those that have nothing to go on with
SHAPES = {shape: Probe(shape=shape) for shape in PROBES}


def test_discovery() -> None:
    assert {*ANY, "skewed_mean"} <= set(WRAPPERS)
    assert all(issubclass(methods.get(name), Wrapper) for name in WRAPPERS)


def pairs(wrapper: str) -> Iterator[tuple[str, Case]]:
    """Defaults of every base on every probe the wrapper accepts, its other checked options on the first."""
    cls = methods.get(wrapper)
    for name in methods.names():
        for options in methods.get(name).checked:
            given = {"base": Base(name, options)}
            accepted = [shape for shape, probe in SHAPES.items() if cls.applies_to(probe.task, given) is None]
            for shape in accepted[:1] if options else accepted:
                yield f"{name} {dict(options)} on {shape}", Case(cls, given, SHAPES[shape])


@pytest.mark.filterwarnings("ignore:.*biased upwards")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_step_of_every_stage_over_every_base_it_accepts(wrapper: str) -> None:
    bases, results = set(), []
    for said, case in pairs(wrapper):
        bases.add(case.options["base"].name)
        results.append(run_check(wrapper, said, lambda case=case: check_gradients(case)))
    failed = [str(result) for result in results if not result.passed]
    assert not failed, "\n".join(failed)
    refused = set(methods.names()) - bases
    assert len(bases) >= 10
    if wrapper in ANY:
        assert refused == SOLVED | {"zero_shot"}  # which is for tasks without labels
    if wrapper == "skewed_mean":  # fitted in several stages, or on a loss of its own: the plan says so
        assert {"late", "cca", "dcca", "dccae", "channel_exchange", "emma"} <= refused


@pytest.mark.slow
def test_the_guide_says_what_combines_and_what_does_not() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "run.md").read_text(encoding="utf-8")
    section = guide.partition("## Wrappers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, flags=re.M)
    said = {wrapper: set(re.findall(r"`(\w+)`", bases)) for wrapper, bases in rows}
    refused = {wrapper: {base for base in methods.names() if not takes(wrapper, base)} for wrapper in WRAPPERS}
    assert said == refused


def takes(wrapper: str, base: str) -> bool:
    """On some probe, with the default options of both."""
    return any(methods.get(wrapper).applies_to(probe.task, {"base": Base(base)}) is None for probe in SHAPES.values())


@pytest.mark.parametrize(
    ("base", "on"),
    [
        (Base("channel_exchange"), task(images())),
        (Base("gated", {"attention": "hard"}), task(vectors())),
    ],
)
def test_centres_refuse_a_base_whose_own_loss_needs_the_head_they_replace(base, on) -> None:
    cls = methods.get("skewed_mean")
    assert "trained on the task's loss" in cls.applies_to(on, {"base": base})
    with pytest.raises(ValueError, match="trained on the task's loss"):
        cls(on, RECIPE, base=base)


@pytest.mark.parametrize("wrapper", ["gradient_blending", "gradient_modulation"])
@pytest.mark.parametrize("base", ["cca", "early", "unimodal"])
def test_who_treats_encoders_one_by_one_refuses_a_base_that_has_not_got_them(wrapper: str, base: str) -> None:
    reason = methods.get(wrapper).applies_to(task(vectors()), {"base": Base(base)})
    assert reason is not None and "an encoder for each modality" in reason
    assert methods.get(wrapper).applies_to(task(vectors()), {"base": Base("concat")}) is None
