"""Pillars as weights over conditions, against the definition by curves."""

import numpy as np
import pytest

from leaderboard import pillars
from leaderboard.moderated import panel, unit
from leaderboard.robustness import area
from leaderboard.summary import summarise

CURVES = [("image", "noise"), ("image", "blur"), ("audio", "noise")]


def scores() -> dict[str, float]:
    rng = np.random.default_rng(0)
    ids = [
        "clean",
        *(f"single:{k}:{c}:{s}" for k, c in CURVES for s in range(1, 6)),
        *(f"joint:{s}" for s in range(1, 6)),
    ]
    return dict(zip(ids, rng.random(len(ids)), strict=True)) | {"missing:image": 0.4, "missing:audio": 0.7}


def apply(weights: dict[str, float]) -> float:
    found = scores()
    return sum(weight * found[name] for name, weight in weights.items())


def single_area() -> float:
    found = scores()
    own = {(k, c): area([found["clean"], *(found[f"single:{k}:{c}:{s}"] for s in range(1, 6))]) for k, c in CURVES}
    image = (own["image", "noise"] + own["image", "blur"]) / 2
    return (image + own["audio", "noise"]) / 2


def joint_area() -> float:
    found = scores()
    return area([found["clean"], *(found[f"joint:{s}"] for s in range(1, 6))])


def test_weights_are_the_areas_less_clean() -> None:
    clean = scores()["clean"]
    assert apply(pillars.clean()) == clean
    assert apply(pillars.single(CURVES)) == pytest.approx(single_area() - clean)
    assert apply(pillars.joint()) == pytest.approx(joint_area() - clean)
    assert apply(pillars.robust(CURVES)) == pytest.approx((single_area() + joint_area()) / 2 - clean)
    assert apply(pillars.missing(["missing:image", "missing:audio"])) == pytest.approx(0.55)


def test_a_drop_does_not_see_the_level() -> None:
    """What loses nothing has 0, whatever its clean score: weights of a drop sum to 0, those of a score to 1."""
    for weights in (pillars.single(CURVES), pillars.joint(), pillars.robust(CURVES)):
        assert sum(weights.values()) == pytest.approx(0, abs=1e-12)
        assert weights["clean"] < 0
    assert sum(pillars.missing(["missing:a", "missing:b", "missing:c"]).values()) == pytest.approx(1)


def test_who_is_at_chance_has_nothing_to_lose() -> None:
    """Control at .82 with chance .1: normalised .8, so that .64, or a score of .676, is asked for."""

    def chosen(trivial: float, higher: bool, **means: float) -> set[str]:
        methods = {name: summarise(np.full((2, 3), mean)) for name, mean in means.items()}
        return set(pillars.strong(panel(methods, unit(trivial, higher)), trivial, "control"))

    found = chosen(0.1, True, control=0.82, just=0.677, short=0.675, chance=0.1, better=0.9)
    assert found == {"control", "just", "better"}
    # An error of 1 for the trivial predictor: normalised .8 at .2, so that an error of at most .36 is asked for.
    assert chosen(1.0, False, control=0.2, just=0.35, short=0.37) == {"control", "just"}
    assert chosen(0.5, True, control=0.4, other=0.45, better=0.6) == {"better"}


def test_nothing_to_average() -> None:
    for make in (pillars.single, pillars.missing):
        with pytest.raises(ValueError, match="at least one"):
            make([])
