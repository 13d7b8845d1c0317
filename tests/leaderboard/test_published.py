"""The published results: real records, from which any methods may be taken away."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from leaderboard import reference
from leaderboard.board import Board, build
from leaderboard.merge import Evidence, gather

PILLARS = ("clean", "robust", "missing")
UNIMODAL = "best unimodal"  # one row for several methods: without one of them another may be the best


FILE = Path(reference.__file__).parent / "reference.parquet"


@pytest.fixture(scope="module", name="published", params=["fitted", "frozen"])
def published_fixture(request: pytest.FixtureRequest) -> Iterator[tuple[Evidence, Board]]:
    """With a prior of the variance that is fitted to whoever is there, and with the published one."""
    with pytest.MonkeyPatch.context() as patch:
        # Who may be the best is a question about all methods, and takes most of the time.
        patch.setattr("leaderboard.ranking._best", lambda *args: ())
        evidence = gather([], beside=[FILE]) if request.param == "frozen" else gather([FILE])
        assert bool(evidence.priors) == (request.param == "frozen")
        yield evidence, build(evidence, "plain")


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_no_method_moves_another(published: tuple[Evidence, Board], seed: int, number: int) -> None:
    evidence, whole = published
    labels = sorted({r.cell.label for r in evidence.records if r.cell.track == "plain"} - {whole.control})
    gone = set(Random(seed).sample(labels, number))
    fewer = build(replace(evidence, records=tuple(r for r in evidence.records if r.cell.label not in gone)), "plain")
    for pillar in PILLARS:
        before = [s for s in whole.order(pillar) if s.method not in {*gone, UNIMODAL}]
        after = [s for s in fewer.order(pillar) if s.method != UNIMODAL]
        assert [s.method for s in after] == [s.method for s in before]
        for a, b in zip(after, before, strict=True):
            assert (a.advantage, a.on, a.of) == (b.advantage, b.on, b.of), (pillar, a.method)
            if evidence.priors:
                assert (a.low, a.high, a.by_dataset) == (b.low, b.high, b.by_dataset), (pillar, a.method)
