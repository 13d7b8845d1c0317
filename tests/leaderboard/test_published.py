"""The published results: real records, from which any methods may be taken away."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leaderboard import reference
from leaderboard.board import Board, build
from leaderboard.merge import Evidence, gather

PILLARS = ("clean", "robust", "missing")
UNIMODAL = "best unimodal"  # one row for several methods: without one of them another may be the best


@pytest.fixture(scope="module", name="published")
def published_fixture() -> Iterator[tuple[Evidence, Board]]:
    with pytest.MonkeyPatch.context() as patch:
        # Who may be the best is a question about all methods, and takes most of the time.
        patch.setattr("leaderboard.ranking._best", lambda *args: ())
        evidence = gather([Path(reference.__file__).parent / "reference.parquet"])
        assert evidence.priors, "published with their priors, so that not even an interval moves"
        yield evidence, build(evidence, "plain")


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_no_method_moves_another(published: tuple[Evidence, Board], random: Random, number: int) -> None:
    evidence, whole = published
    labels = sorted({r.cell.label for r in evidence.records if r.cell.track == "plain"} - {whole.control})
    gone = set(random.sample(labels, number))
    fewer = build(replace(evidence, records=tuple(r for r in evidence.records if r.cell.label not in gone)), "plain")
    for pillar in PILLARS:
        before = [s for s in whole.order(pillar) if s.method not in {*gone, UNIMODAL}]
        after = [s for s in fewer.order(pillar) if s.method != UNIMODAL]
        assert [s.method for s in after] == [s.method for s in before]
        for a, b in zip(after, before, strict=True):
            assert (a.advantage, a.low, a.high) == (b.advantage, b.low, b.high), (pillar, a.method)
            assert (a.on, a.of, a.by_dataset) == (b.on, b.of, b.by_dataset)
