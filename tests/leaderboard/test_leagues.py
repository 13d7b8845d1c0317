"""Leagues: who is ranked where, and that a league says of its members what the whole board does."""

from pathlib import Path

import pytest

from leaderboard.board import BEST_UNIMODAL, Board, build, of_league
from leaderboard.leagues import LEAGUES
from leaderboard.merge import gather
from leaderboard.store import Store
from leaderboard.tables import table
from tests.leaderboard.conftest import Planted, make_record, write_results
from tests.records import changed
from tests.records import make_record as plain_record

INPUTS = {
    "digits": ("image 1x8x4", "image 1x8x4"),
    "speech": ("image 1x8x8", "sequence 20x13"),
    "interactions_xor": ("vector 8", "vector 8"),
    "sensors": ("vector 8", "vector 3"),
}
METHODS = {
    "unimodal[image]": Planted(0.6, family="baseline", options={"modality": "image"}),
    "concat": Planted(0.8, family="baseline"),
    "gated": Planted(0.85),
    "softmax_attention": Planted(0.9, family="attention"),
    "exchange": Planted(0.88, family="exchange"),
}
ONLY = {"softmax_attention": {"digits", "speech"}, "exchange": {"digits"}}


@pytest.fixture(scope="module", name="board")
def board_fixture(tmp_path_factory: pytest.TempPathFactory) -> Board:
    store = Store(tmp_path_factory.mktemp("leagues"))
    for label, planted in METHODS.items():
        for dataset, inputs in INPUTS.items():
            for seed in range(2) if dataset in ONLY.get(label, INPUTS) else ():
                record, predictions = make_record(label, planted, dataset, seed, rows=100)
                store.write(changed(record, inputs=inputs), predictions)
    return build(gather([store.folder]), "plain")


def test_a_dataset_is_in_the_leagues_of_its_shape() -> None:
    def leagues(**facts: object) -> set[str]:
        cell = plain_record(**facts).cell
        return {name for name, (_, belongs) in LEAGUES.items() if belongs(cell)}

    assert leagues(inputs=INPUTS["digits"]) == {"tokens", "same-shaped images"}
    assert leagues(inputs=INPUTS["speech"]) == {"tokens"}
    assert leagues(inputs=INPUTS["sensors"]) == {"vectors"}
    assert leagues(inputs=INPUTS["interactions_xor"], bayes=0.9) == {"interactions"}
    assert leagues(inputs=("text 12", "vector 4"), target="pairs") == {"tokens", "retrieval"}
    assert leagues(inputs=()) == set(), "a record that does not say what its inputs are is in none"


def test_every_method_is_ranked_where_it_lives(board: Board) -> None:
    found = {league.name: league for league in board.leagues}
    assert found.keys() == {"vectors", "tokens", "same-shaped images", "interactions"}
    assert found["tokens"].datasets == ("digits", "speech")
    tokens = found["tokens"].rankings["clean"].standings
    assert tokens.keys() == {"concat", "gated", "softmax_attention", BEST_UNIMODAL}, "exchange lacks speech"
    assert next(iter(tokens)) == "softmax_attention" and tokens["softmax_attention"].place == 1
    images = found["same-shaped images"].rankings["clean"].standings
    assert {"exchange", "softmax_attention"} <= images.keys()
    assert "softmax_attention" not in found["interactions"].rankings["clean"].standings


def test_a_league_is_a_board(board: Board) -> None:
    league = of_league(board, "same-shaped images")
    assert [d.name for d in league.datasets] == ["digits"]
    assert {r.label for r in league.rows} == {*league.references, "gated", "softmax_attention", "exchange"}
    own = next(r for r in league.rows if r.label == "exchange").standings["clean"]
    whole = next(r for r in board.rows if r.label == "exchange").standings["clean"]
    assert own.advantage == pytest.approx(whole.advantage), "it has this dataset only"
    shown = table(league, league="same-shaped images")
    assert "league same-shaped images" in shown.title and shown.name == "overview-plain-same-shaped-images"
    assert any(line.startswith("League tokens (digits, speech; 4 methods)") for line in table(board).legend)
    with pytest.raises(KeyError, match="no league named 'retrieval'"):
        of_league(board, "retrieval")


def test_a_league_in_which_nobody_is_compared_is_not_a_line(tmp_path: Path) -> None:
    """One's own method alone: four lines would say four times that there is no concat."""
    store = Store(tmp_path)
    for dataset, inputs in INPUTS.items():
        record, predictions = make_record("gated", METHODS["gated"], dataset, 0, rows=100)
        store.write(changed(record, inputs=inputs), predictions)
    alone = build(gather([store.folder]), "plain")
    assert alone.leagues and not any(line.startswith("League") for line in table(alone).legend)


def test_a_board_of_one_shape_has_no_leagues(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "one", METHODS, ("digits", "shapes"), seeds=2, rows=60).folder
    assert not [league for league in _plain(folder).leagues if len(league.datasets) == 2]


def _plain(folder: Path) -> Board:
    return build(gather([folder]), "plain")
