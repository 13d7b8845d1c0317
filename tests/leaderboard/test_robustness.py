"""Robustness from records alone: toy curves, every formula by hand, and the mistakes of others."""

import ast
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard import robustness as rb
from leaderboard.record import Record
from tests.records import changed, make_record, measured

# Toy curves: ten classes, so that the trivial score is 0.1.
CONCAT = (0.93, 0.88, 0.80, 0.68, 0.52, 0.35)
TOY = {
    "strong_robust": (0.94, 0.92, 0.88, 0.82, 0.75, 0.66),
    "strong_fragile": (0.95, 0.86, 0.70, 0.50, 0.34, 0.20),
    "flat": (0.30,) * 6,
    "chance": (0.10,) * 6,
}


def record(
    label: str = "m", curves: dict[rb.Curve, tuple[float, ...]] | None = None, clean: float = 0.9, **facts: Any
) -> Record:
    """A record of two modalities with these single-corruption curves (severities 0 to 5) and further conditions."""
    curves = curves or {}
    clean = next((curve[0] for curve in curves.values()), clean)
    single = tuple(
        measured("single", score, k, c, s)
        for (k, c), curve in curves.items()
        for s, score in enumerate(curve[1:], start=1)
    )
    defaults: dict[str, Any] = {
        "method": label.split("[")[0],
        "label": label,
        "options": {"modality": label[9:-1]} if label.startswith("unimodal[") else {},
        "modalities": ("image", "sound"),
        "trivial": 0.1,
        "conditions": (measured("clean", clean), *single, *facts.pop("extra", ())),
    }
    return make_record(**{**defaults, **facts})


def toy(name: str) -> Record:
    return record(name, {("image", "noise"): TOY[name]})


BASE = record("concat", {("image", "noise"): CONCAT})


# The toy check ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "area", "mce"),
    [
        ("strong_robust", 0.816, 0.55),
        ("strong_fragile", 0.550, 1.36),
        ("flat", 0.222, 1.98),
        ("chance", 0.000, 2.54),
    ],
)
def test_toy_areas_and_mce(name: str, area: float, mce: float) -> None:
    assert round(rb.robustness(toy(name)) or 0.0, 3) == area
    assert round(rb.mce(toy(name), BASE) or 0.0, 2) == mce


def test_the_flat_predictor_is_not_rewarded() -> None:
    order = [rb.robustness(toy(name)) for name in TOY]
    assert order == sorted(order, key=lambda value: -(value or 0.0))
    # What a measure we do not rank by would have said: it is right for strong models and blank for weak ones.
    kept = [rb.retention(toy(name), BASE) for name in ("strong_robust", "strong_fragile")]
    assert [round(v or 0, 3) for v in kept] == [0.874, 0.582]
    assert rb.retention(toy("flat"), BASE) is rb.retention(toy("chance"), BASE) is None


# The formulas -----------------------------------------------------------------------------------------------------


def test_normalise_is_zero_for_the_trivial_predictor_and_one_for_a_perfect_one() -> None:
    assert rb.normalise(0.25, 0.25, True) == 0
    assert rb.normalise(1.0, 0.25, True) == 1
    assert rb.normalise(0.1, 0.25, True) == pytest.approx(-0.2)  # below chance is not clipped
    assert rb.normalise(0.8, 0.8, False) == 0
    assert rb.normalise(0.0, 0.8, False) == 1
    assert math.isnan(rb.normalise(0.5, None, True))
    assert math.isnan(rb.normalise(1.0, 1.0, True))


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6))
def test_area_is_the_sum_of_the_spec(curve: list[float]) -> None:
    expected = sum((curve[s] + curve[s + 1]) / 2 * 1 / 5 for s in range(5))
    assert rb.area(curve) == pytest.approx(expected)
    assert min(curve) - 1e-9 <= rb.area(curve) <= max(curve) + 1e-9


def test_modalities_count_alike_however_many_corruptions_each_has() -> None:
    flat = {("image", "a"): 0.9, ("image", "b"): 0.9, ("image", "c"): 0.9, ("sound", "a"): 0.9}
    falls = {key: (0.9, *[0.9 if key[0] == "image" else 0.1] * 5) for key in flat}
    m = record(curves=falls)
    own = rb.modality_areas(m)
    assert own["image"] == pytest.approx(0.8 / 0.9)
    assert own["sound"] == pytest.approx(0.1 * 0.8 / 0.9)
    assert rb.robustness(m) == pytest.approx((own["image"] + own["sound"]) / 2)
    assert rb.worst_modality(m) == ("sound", own["sound"])
    assert rb.robustness(m, only=[("image", "a")]) == pytest.approx(own["image"])
    with pytest.raises(KeyError):
        rb.robustness(m, only=[("image", "a"), ("sound", "unseen")])


def test_an_incomplete_curve_is_no_curve() -> None:
    m = record(curves={("image", "noise"): CONCAT})
    partial = changed(m, conditions=tuple(c for c in m.conditions if c.severity != 3))
    assert rb.curves(partial) == {}
    assert rb.robustness(partial) is None
    assert rb.worst_modality(partial) is None


def test_joint_and_misaligned_have_curves_of_their_own() -> None:
    extra = [measured("joint", 0.8, severity=s) for s in range(1, 6)]
    extra += [measured("misaligned", 0.7, "sound", severity=s) for s in range(1, 6)]
    m = record(curves={("image", "noise"): (0.9,) * 6}, extra=extra)
    assert rb.curves(m, "joint") == {("joint", "joint"): (0.9, *[0.8] * 5)}
    assert rb.curves(m, "misaligned") == {("sound", "misaligned"): (0.9, *[0.7] * 5)}
    assert list(rb.curves(m)) == [("image", "noise")]
    assert rb.robustness(m) == pytest.approx(0.8 / 0.9)  # not diluted by the others


def test_mce_averages_ratios_and_concat_has_one() -> None:
    concat = record("concat", {("image", "a"): (0.9, *[0.8] * 5), ("sound", "a"): (0.9, *[0.5] * 5)})
    m = record("m", {("image", "a"): (0.9, *[0.9] * 5), ("sound", "a"): (0.9, *[0.25] * 5)})
    assert rb.mce(concat, concat) == pytest.approx(1)
    assert rb.corruption_errors(m, concat) == pytest.approx({("image", "a"): 0.5, ("sound", "a"): 1.5})
    assert rb.mce(m, concat) == pytest.approx(1.0)
    assert rb.mce(m, concat, only=[("image", "a")]) == pytest.approx(0.5)
    perfect = record("concat", {("image", "a"): (1.0,) * 6})
    assert rb.mce(m, perfect) is None


def test_gains_are_against_the_best_baseline_without_the_broken_modality() -> None:
    alone = [record("unimodal[image]", clean=0.8), record("unimodal[sound]", clean=0.6)]
    m = record("m", {("image", "a"): (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), ("image", "b"): (0.9, 0.9, 0.9, 0.9, 0.9, 0.9)})
    baselines = rb.Baselines.of([*alone, m])
    assert rb.gain(m, baselines) == pytest.approx(0.1)
    gains = rb.corrupted_gains(m, baselines)
    assert gains == pytest.approx({("image", s): (0.9 - 0.1 * s + 0.9) / 2 - 0.6 for s in range(1, 6)})
    assert rb.corrupted_gains(m, baselines, only=[("image", "a")])["image", 5] == pytest.approx(-0.2)
    assert rb.gain(m, rb.Baselines.of([m])) is None
    assert rb.corrupted_gains(m, rb.Baselines.of([alone[0], m])) == {}


def test_baselines_are_of_the_same_seed_and_the_plain_track() -> None:
    records = [
        record("concat", clean=0.5, seed=0),
        record("concat", clean=0.7, seed=1),
        record("concat", clean=0.99, seed=2, track="augmented"),
        record("concat[hidden=9]", clean=0.98, seed=0),
        record("unimodal[image]", clean=0.7, seed=0),
        record("unimodal[image]", clean=0.2, seed=1),
        record("unimodal[sound]", clean=0.6, seed=0),
        record("unimodal[sound]", clean=0.6, seed=1),
    ]
    baselines = rb.Baselines.of(records)
    assert {seed: r.clean for seed, r in baselines.concat.items()} == {0: 0.5, 1: 0.7}
    # The best by its mean over seeds is sound, also where image was luckier.
    assert baselines.best(0) == 0.6
    assert baselines.best(0, without="sound") == 0.7
    assert baselines.best(7) is None


def test_missing_means_worst_subset_and_area_over_the_rate() -> None:
    extra = [
        measured("missing", 0.55, absent=("image",)),
        measured("missing", 0.28, absent=("sound",)),
        *[measured("missing_rate", 1 - rate, rate=rate) for rate in (0.5, 0.1, 0.3)],
        measured("missing_rate", 0.0, modality="sound", rate=0.3),  # of one alone: no point of the curve
    ]
    found = rb.missing(record(clean=1.0, extra=extra))
    assert found.mean == pytest.approx((0.5 + 0.2) / 2)
    assert found.worst == pytest.approx(0.2)
    assert found.rate == pytest.approx((0.75 - 0.1) / 0.9)  # mean height of the line 1 - p over [0, 0.5]
    assert rb.missing(record()) == rb.Missing(None, None, None)


def test_shapley_values_add_up_and_treat_twins_alike() -> None:
    names = ("a", "b", "c")
    extra = [measured("missing", score, absent=absent) for absent, score in {
        ("a",): 0.6, ("b",): 0.6, ("c",): 0.9, ("a", "b"): 0.1, ("a", "c"): 0.6, ("b", "c"): 0.6}.items()]  # fmt: skip
    m = record(clean=0.9, modalities=names, extra=extra)
    found = rb.reliance(m)
    assert found is not None
    assert sum(found.values()) == pytest.approx(0.9 - 0.1)
    assert found["a"] == pytest.approx(found["b"])
    assert found["c"] == pytest.approx(0)
    # a alone is worth 0.5, after b 0.3; orders are equally likely.
    assert found["a"] == pytest.approx(0.4)
    assert rb.reliance(record(modalities=names, extra=extra[:-1])) is None


def weighing(weights: dict[rb.Curve, list[tuple[float, float]]]) -> Record:
    clean = next(iter(weights.values()))[0]
    conditions = [measured("clean", 0.9, weights=clean)]
    for (k, c), series in weights.items():
        conditions += [measured("single", 0.8, k, c, s, weights=w) for s, w in enumerate(series[1:], start=1)]
    return record(conditions=tuple(conditions))


def test_attention_audit_is_spearman_of_weight_and_severity() -> None:
    falling = [(0.5 - 0.05 * s**2, 0.5 + 0.05 * s**2) for s in range(6)]
    jitter = [(0.5 + 1e-8 * s, 0.5 - 1e-8 * s) for s in range(6)]
    zigzag = [(0.5, 0.5), (0.4, 0.6), (0.45, 0.55), (0.3, 0.7), (0.35, 0.65), (0.1, 0.9)]
    m = weighing({("image", "a"): falling, ("image", "b"): zigzag, ("sound", "a"): jitter})
    found = rb.attention_audit(m)
    assert found["image", "a"] == pytest.approx(-1)  # of its rank, not of its value
    assert found["image", "b"] == pytest.approx(1 - 6 * (25 + 4 + 4 + 4 + 4 + 25) / (6 * 35))
    assert found["sound", "a"] == 0  # the weight of sound did not move
    assert rb.audits([m])[0]["image"] == pytest.approx((found["image", "a"] + found["image", "b"]) / 2)
    assert rb.attention_audit(weighing({("sound", "a"): falling}))["sound", "a"] == pytest.approx(1)
    assert rb.audits([BASE, m, BASE])[::2] == [{}, {}]
    assert rb.audits([BASE, m])[1] == rb.audits([m])[0]


def test_calibration_is_averaged_over_corruptions() -> None:
    conditions = (
        measured("clean", 0.9, calibration={"nll": 0.3, "ece": 0.02}),
        measured("single", 0.8, "image", "a", 1, calibration={"nll": 0.5, "ece": 0.1}),
        measured("single", 0.7, "image", "a", 2, calibration={"nll": 0.7}),
        measured("joint", 0.1, severity=1, calibration={"nll": 9.0, "ece": 0.9}),
    )
    assert rb.calibration(record(conditions=conditions)) == pytest.approx(
        {"nll": 0.3, "ece": 0.02, "nll_corrupted": 0.6}
    )


# Frames -----------------------------------------------------------------------------------------------------------


# The mistakes of others -----------------------------------------------------------------------------------------------


def test_an_error_metric_has_the_right_sign() -> None:
    """MultiBench treats errors as scores: its most fragile regressor is its most robust."""
    facts: dict[str, Any] = {"higher_is_better": False, "trivial": 1.0, "metric": "mae"}
    good = record("m", {("image", "a"): (0.1, 0.1, 0.2, 0.2, 0.3, 0.3)}, **facts)
    bad = record("m", {("image", "a"): (0.1, 0.3, 0.5, 0.7, 0.9, 1.1)}, **facts)
    concat = record("concat", {("image", "a"): (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)}, **facts)
    alone = [record("unimodal[image]", clean=0.3, **facts), record("unimodal[sound]", clean=0.5, **facts)]
    baselines = rb.Baselines.of([*alone, concat])
    assert (rb.robustness(good) or 0) > (rb.robustness(concat) or 0) > (rb.robustness(bad) or 0)
    assert (rb.mce(good, concat) or 9) < 1 < (rb.mce(bad, concat) or 0)
    assert rb.mce(good, concat) == pytest.approx(1.1 / 2.0)
    assert rb.gain(good, baselines) == pytest.approx(0.2)
    assert rb.corrupted_gains(good, baselines)["image", 5] == pytest.approx(0.2)
    assert rb.corrupted_gains(bad, baselines)["image", 5] == pytest.approx(-0.6)
    assert (rb.retention(good, concat) or 0) > (rb.retention(bad, concat) or 0)
    absent = [measured("missing", 0.4, absent=("image",)), measured("missing", 0.8, absent=("sound",))]
    m = record(clean=0.1, extra=absent, **facts)
    assert rb.missing(m).worst == pytest.approx(0.2)
    shapley = rb.reliance(m)
    assert shapley is not None
    assert shapley["sound"] > shapley["image"] > 0
    assert sum(shapley.values()) == pytest.approx(0.9)


def test_the_best_epoch_is_chosen_without_the_test_split() -> None:
    """MultiBench++ and BalanceBenchmark select on test for most datasets; ours trains where there is no test split."""
    from benchmark.build import build_dataset, build_method
    from benchmark.trainer import fit

    datamodule = build_dataset("interactions_xor", {"rows": 500})
    splits = {name: split for name, split in datamodule.splits.items() if name != "test"}
    datamodule.__dict__["splits"] = splits
    method = build_method("concat", {}, datamodule.task, {"width": 8, "epochs": 3, "batch_size": 100})
    (report,) = fit(method, datamodule, seed=0)
    assert len(report.history) == 3
    assert not any("test" in name for epoch in report.history for name in epoch)
    with pytest.raises(KeyError):
        datamodule.test_dataloader()


def test_the_module_needs_no_torch_and_no_hard_coded_curve() -> None:
    tree = ast.parse(Path(rb.__file__).read_text(encoding="utf-8"))
    imported = {n.module.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    imported |= {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    assert not imported & {"torch", "lightning", "datamodules", "methods", "benchmark"}
    decimals = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, float)]
    assert set(decimals) <= {0.0, rb.WEAK}
