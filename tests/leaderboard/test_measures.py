"""Measures of fills, doubt and attention, by hand from a record."""

import msgspec
import pytest

from leaderboard import robustness as rb
from leaderboard.measures import measure
from leaderboard.record import Fitted, Measured, Record
from tests.records import make_record, measured


def of(*conditions: Measured, **facts: object) -> dict[str, float]:
    record: Record = make_record(conditions=(measured("clean", 0.9), *conditions), trivial=0.1, **facts)
    return measure(record, rb.Baselines.of([record]), frozenset())


def missing(absent: str, score: float, **fills: float) -> Measured:
    return Measured(kind="missing", absent=(absent,), score=score, fills=fills)  # type: ignore[arg-type]


def test_both_fills_are_means_over_the_subsets_and_a_mask_is_the_score_of_both() -> None:
    found = of(missing("image", 0.55, zero=0.1, mean=0.55), missing("audio", 0.46, zero=0.28, mean=0.46), fill="mean")
    assert found["missing_mean"] == pytest.approx((0.5 + 0.4) / 2)
    assert found["missing_zero"] == pytest.approx((0.0 + 0.2) / 2)
    masked = of(missing("image", 0.55, mask=0.55), missing("audio", 0.46, mask=0.46), fill="mask")
    assert masked["missing_zero"] == masked["missing_mean"] == pytest.approx(0.45)
    assert not {"missing_zero", "missing_mean"} & set(of(missing("image", 0.55), missing("audio", 0.46)))
    # A subset without one of them would make the mean one over other subsets.
    assert "missing_zero" not in of(
        missing("image", 0.5, mean=0.5), missing("audio", 0.4, zero=0.1, mean=0.4), fill="mean"
    )


def test_declared_uncertainty_is_clean_and_means_over_corruptions_and_absent_subsets() -> None:
    single = [
        msgspec.structs.replace(
            measured("single", 0.7, "image", "gaussian_noise", s), diagnostics={"error_auroc": auroc}
        )
        for s, auroc in ((1, 0.6), (2, 0.8))
    ]
    clean = msgspec.structs.replace(
        measured("clean", 0.9), diagnostics={"error_auroc": 0.65}, calibration={"error_auroc": 0.9}
    )
    absent = [
        msgspec.structs.replace(missing(name, 0.5), diagnostics={"error_auroc": auroc})
        for name, auroc in (("image", 0.3), ("audio", 0.8))
    ]
    record: Record = make_record(conditions=(clean, *single, *absent), trivial=0.1)
    found = measure(record, rb.Baselines.of([record]), frozenset())
    assert found["error_auroc"] == 0.9 and found["uncertainty_auroc"] == 0.65
    assert found["uncertainty_auroc_corrupted"] == pytest.approx(0.7)
    assert found["uncertainty_auroc_missing"] == pytest.approx(0.55)
    assert "uncertainty_auroc" not in of()


def test_attention_is_averaged_over_modalities_and_compared_with_uniform() -> None:
    summary = {"attention/rgb/asked": 0.6, "attention/rgb/uniform": 0.2, "attention/depth/asked": 0.4}
    summary |= {"attention/depth/uniform": 0.1, "attention/rgb/entropy": 0.5, "attention/rgb/support": 0.3}
    found = of(summary=summary)
    assert (found["asked"], found["asked_gain"]) == pytest.approx((0.5, 0.35))
    assert (found["attention_entropy"], found["attention_support"]) == (0.5, 0.3)
    assert "asked" not in of(summary={"recall": 0.3})


def test_steps_are_those_of_all_stages() -> None:
    stages = (Fitted("train", 1.0, 10, 100), Fitted("energy", 1.0, 5, 40), Fitted("statistics", 0.1))
    assert of(training=stages)["steps"] == 140
