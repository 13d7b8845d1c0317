"""The contract's checks: every way to break it is one finding, in the contract's words, with its place."""

from pathlib import Path

import pytest

from benchmark.conformance import Result, check_method
from datamodules.registry import load_plugin

PLUGIN = Path(__file__).with_name("broken_methods.py")
FEW = ("vectors", "image_text", "regression")


def check(name: str) -> list[Result]:
    load_plugin(PLUGIN)
    return check_method(name, FEW)


def line(name: str) -> int:
    """Where the plugin marks what is wrong with the method."""
    (number,) = [i for i, text in enumerate(PLUGIN.read_text().splitlines(), 1) if text.endswith(f"# {name.upper()}")]
    return number


@pytest.mark.parametrize(
    ("name", "check_name", "said"),
    [
        ("wide", "shapes", "`fuse` must return [B, 8], got [6, 16]"),
        ("no_super", "shapes", "`__init__` must begin with `super().__init__(task, recipe, ...)`"),
        ("bare_term", "gradients", "`auxiliary` must return a dict of named loss terms, got a Tensor"),
        ("bare_stage", "gradients", "`terms` of stage 'train' must be a tuple of functions"),
        ("raises_inside", "gradients", "raised RuntimeError: no 64 rows"),
        ("no_annotation", "signature", "hyper-parameters ['rank'] have no annotation"),
        ("unmasked_weights", "present", "`weights` must be 0 where `present` is False"),
        ("cannot_say", "applies", "raised RuntimeError: no idea about probe_vectors"),
        ("cannot_be_built", "shapes", "raised RuntimeError: Trying to create tensor with negative dimension -16"),
    ],
)
def test_a_cause_is_said_once_in_words_with_its_place(name: str, check_name: str, said: str) -> None:
    failed = [result for result in check(name) if not result.passed]
    assert [result.check for result in failed] == [check_name]
    assert said in failed[0].detail and failed[0].detail.endswith(f"; broken_methods.py:{line(name)}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ignores_present", "`fuse` takes `softmax` over modalities and never looks at `present`"),
        ("weighs_by_hand", "`fuse` averages over modalities, and absent ones, which are zeros, have their share"),
        ("takes_the_best", "`fuse` takes `amax` over modalities and never looks at `present`"),
        ("weighs_and_reads", "`weights` gives absent modalities none, but `fuse` reads their encodings"),
    ],
)
def test_who_lets_absent_modalities_count_is_warned_once(name: str, said: str) -> None:
    (warning,) = [result for result in check(name) if result.warning]
    assert warning.passed and warning.check == "present"
    assert said in warning.detail and warning.detail.endswith(f"; broken_methods.py:{line(name)}")


def test_who_relies_on_zeros_is_told() -> None:
    notes = {result.detail for result in check_method("concat", FEW) if result.check == "present"}
    assert notes == {
        "relies on zeros: what is absent reaches `fuse` as 0, which must be neutral there, as it is in a sum"
    }
    assert {result.detail for result in check_method("late", FEW) if result.check == "present"} == {""}


def test_who_is_right_hears_nothing() -> None:
    results = check("right")
    assert all(result.passed and not result.warning for result in results)
    assert {result.probe for result in results if result.check == "fit"} == set(FEW)


def test_declared_options_are_checked_on_the_first_probe_they_apply_to() -> None:
    results = check("bad_variant")
    assert {(r.probe, r.variant) for r in results if r.check == "shapes"} == {
        *((probe, "") for probe in FEW),
        ("vectors", "power=1"),
        ("vectors", "power=2"),
    }
    (failed,) = [result for result in results if not result.passed]
    assert failed.variant == "power=2" and "got [6, 16]" in failed.detail
