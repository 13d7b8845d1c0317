"""Every measure of a board of real cells, derived again from their predictions by other code: loops and NumPy.

What a cell does not keep cannot be: of what fills an absent modality only the chosen way, of probabilities only those
on clean rows. `tests/benchmark/test_fills.py` and `test_evaluate.py` hold the sweep itself against a naive one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats
import sklearn.metrics

from benchmark.executors.local import Settings, execute
from benchmark.matrix import parse
from benchmark.plan import make_plan
from leaderboard.board import Board, Row, build
from leaderboard.merge import gather
from leaderboard.store import Store

DATASET, SEEDS, CONTROL = "interactions_enhancement", 3, "concat"
MATRIX: dict[str, Any] = {
    "methods": [CONTROL, "gated", "late", "low_rank"],
    "datasets": [{"name": DATASET, "rows": 600}],
    "conditions": ["single", "joint", "missing", "missing_rate", "misaligned"],
    "seeds": SEEDS,
    "recipe": {"width": 8, "epochs": 6, "batch_size": 64, "lr": 1e-2},
}
ROUNDED = 0.01  # of the width of an interval: what rows add is kept in 127 steps
Cell = dict[str, np.ndarray]

pytestmark = pytest.mark.slow


class Raw:
    """The predictions of the cells, and of their records only what no prediction tells."""

    def __init__(self, folder: Path) -> None:
        store = Store(folder)
        records = sorted(store.scan().records, key=lambda r: r.cell.seed)
        self.modalities = records[0].cell.modalities
        self.cells: dict[str, list[Cell]] = {}
        self.fill: dict[str, list[str | None]] = {}
        self.validation: dict[str, list[float]] = {}
        for r in records:
            self.cells.setdefault(r.cell.label, []).append(store.predictions(r.cell.id))
            self.fill.setdefault(r.cell.label, []).append(r.fill)
            stage = r.training[-1]
            sign = -1 if stage.monitor.endswith("loss") else 1
            self.validation.setdefault(r.cell.label, []).append(sign * float(stage.best_score or 0))
        self.trivial = float(records[0].trivial or 0)
        keys = [name.removeprefix("pred:") for name in self.cells[CONTROL][0] if name.startswith("pred:")]
        self.corruptions = {
            k: list(dict.fromkeys(n.split(":")[2] for n in keys if n.startswith(f"single:{k}:")))
            for k in self.modalities
        }

    def score(self, cell: Cell, condition: str = "clean") -> float:
        return sum(int(p == t) for p, t in zip(cell[f"pred:{condition}"], cell["target"], strict=True)) / len(
            cell["target"]
        )

    def normal(self, score: float) -> float:
        return (score - self.trivial) / (1 - self.trivial)

    def line(self, cell: Cell, stem: str) -> list[float]:
        return [self.score(cell), *(self.score(cell, f"{stem}:{s}") for s in range(1, 6))]

    def area(self, cell: Cell, stem: str) -> float:
        return self.normal(float(np.trapezoid(self.line(cell, stem), dx=0.2)))

    def unimodal(self, seed: int, without: str | None = None) -> float:
        """Clean score of the modality that is best on validation, over all seeds."""
        able = [m for m in self.cells if m.startswith("unimodal") and m != f"unimodal[{without}]"]
        return self.score(self.cells[max(able, key=lambda m: float(np.mean(self.validation[m])))][seed])


def _measures(raw: Raw, label: str, seed: int) -> dict[str, float]:
    cell, control = raw.cells[label][seed], raw.cells[CONTROL][seed]
    clean = raw.normal(raw.score(cell))
    own = {k: [raw.area(cell, f"single:{k}:{c}") for c in several] for k, several in raw.corruptions.items()}
    single, joint = float(np.mean([np.mean(v) for v in own.values()])), raw.area(cell, "joint")
    gains = [
        np.mean([raw.score(cell, f"single:{k}:{c}:{s}") for c in several]) - raw.unimodal(seed, without=k)
        for k, several in raw.corruptions.items()
        for s in range(1, 6)
    ]
    stems = [f"single:{k}:{c}" for k, several in raw.corruptions.items() for c in several]
    absent = [raw.normal(raw.score(cell, f"missing:{k}")) for k in raw.modalities]
    rates = [raw.score(cell), *(raw.score(cell, f"missing_rate:{p}") for p in (0.1, 0.3, 0.5, 0.7))]
    found = {
        "clean": raw.score(cell),
        "gain": raw.score(cell) - raw.unimodal(seed),
        "area": single,
        "joint": joint,
        "worst": min(float(np.mean(v)) for v in own.values()),
        "drop_single": clean - single,
        "drop_joint": clean - joint,
        "drop": clean - (single + joint) / 2,
        "misaligned": float(np.mean([raw.area(cell, f"misaligned:{k}") for k in raw.modalities])),
        "corrupted_gain": float(np.mean(gains)),
        "mce": float(
            np.mean(
                [
                    sum(1 - a for a in raw.line(cell, t)[1:]) / sum(1 - a for a in raw.line(control, t)[1:])
                    for t in stems
                ]
            )
        ),
        "missing": float(np.mean(absent)),
        "missing_worst": min(absent),
        "missing_rate": raw.normal(float(np.trapezoid(rates, [0, 0.1, 0.3, 0.5, 0.7])) / 0.7),
        **_calibration(cell),
    }
    if clean > 0 and clean >= 0.8 * raw.normal(raw.score(control)):
        found["retention"] = single / clean
    fill = raw.fill[label][seed]
    return found | {f"missing_{way}": found["missing"] for way in ("zero", "mean") if fill in (way, "mask")}


def _calibration(cell: Cell) -> dict[str, float]:
    p, target = cell["prob:clean"].astype(np.float64), cell["target"]
    right = cell["pred:clean"] == target
    confidence = p.max(axis=1)
    bins = np.array_split(np.argsort(confidence, kind="stable"), 15)
    return {
        "nll": sklearn.metrics.log_loss(target, p, labels=range(p.shape[1])),
        "brier": float(
            np.mean([sum((p[i, c] - (c == t)) ** 2 for c in range(p.shape[1])) for i, t in enumerate(target)])
        ),
        "ece": sum(abs(right[b].mean() - confidence[b].mean()) * len(b) for b in bins) / len(target),
        "error_auroc": float(sklearn.metrics.roc_auc_score(~right, -confidence)),
    }


@pytest.fixture(scope="module", name="folder")
def folder_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells") / "results"
    Store(folder).prepare()
    cells = make_plan(parse(MATRIX, "test")).cells
    records = list(execute(list(cells), Settings(str(folder), workers=0, checkpoint=False)))
    assert len(records) == 6 * SEEDS and all(r.status == "ok" for r in records)
    return folder


@pytest.fixture(scope="module", name="board")
def board_fixture(folder: Path) -> Board:
    return build(gather([folder]), "plain")


def _row(board: Board, label: str) -> Row:
    return next(r for r in board.rows if r.label == label)


@pytest.mark.parametrize("label", MATRIX["methods"])
def test_measures(folder: Path, board: Board, label: str) -> None:
    raw = Raw(folder)
    several = [_measures(raw, label, seed) for seed in range(SEEDS)]
    found = _row(board, label).entries[DATASET].measures
    costs = {"parameters", "steps", "flops", "train_seconds", "latency_1", "latency_64", "memory"}
    corrupted = {"nll_corrupted", "ece_corrupted"}  # no cell keeps these probabilities
    everywhere = {name for name in several[0] if all(name in s for s in several)}
    assert found.keys() - everywhere <= costs | corrupted | {"missing_zero", "missing_mean", "retention"}
    for name in everywhere:
        values = [s[name] for s in several]
        # Scores are kept in single precision.
        assert found[name].values == pytest.approx(values, abs=1e-6), name
        assert found[name].mean == pytest.approx(np.mean(values), abs=1e-6), name


def _prior(variances: np.ndarray, freedom: int) -> tuple[float, float]:
    """Smyth (2004): moments of log s^2 of a scaled F distribution."""
    e = np.log(variances) - scipy.special.digamma(freedom / 2) + np.log(freedom / 2)
    spread = e.var(ddof=1) - scipy.special.polygamma(1, freedom / 2)
    if spread <= 0:
        return float(variances.mean()), np.inf
    half = scipy.optimize.brentq(lambda x: float(scipy.special.polygamma(1, x)) - spread, 1e-8, 1e8)
    return float(np.exp(e.mean() + scipy.special.digamma(half) - np.log(half))), 2 * half


def _moderated(x: dict[str, np.ndarray], weights: dict[str, float]) -> tuple[float, float]:
    """A weighted sum of methods and half its 95 % interval; `x`: method -> `[seeds, rows]`."""
    n, rows = x[CONTROL].shape
    s0, d0 = _prior(np.array([v.mean(axis=1).var(ddof=1) for v in x.values()]), n - 1)
    evidence = len(x) * (n - 1)
    parts, freedoms, share, difference = [], [], 0.0, np.zeros(rows)
    for m, w in weights.items():
        own = x[m].mean(axis=1).var(ddof=1)
        shrunk = s0 if np.isinf(d0) else (d0 * s0 + (n - 1) * own) / (d0 + n - 1)
        parts.append(w**2 * shrunk / n)
        freedoms.append(min(d0 + n - 1, evidence))
        residual = x[m] - x[m].mean(axis=1, keepdims=True) - x[m].mean(axis=0) + x[m].mean()
        share += w**2 * (residual**2).sum() / ((n - 1) * (rows - 1)) / (rows * n)
        difference += w * x[m].mean(axis=0)
    over_rows = max(difference.var(ddof=1) / rows - share, 0.0)
    over_seeds = sum(parts)
    own = min(over_seeds**2 / sum(p**2 / f for p, f in zip(parts, freedoms, strict=True)), max(evidence, *freedoms))
    df = (over_seeds + over_rows) ** 2 / (over_seeds**2 / own + over_rows**2 / (rows - 1))
    return float(difference.mean()), float(scipy.stats.t.ppf(0.975, df) * np.sqrt(over_seeds + over_rows))


def _by_row(raw: Raw, pillar: str) -> dict[str, np.ndarray]:
    """What rows add to a pillar, `[seeds, rows]` of each method, in units of accuracy."""

    def of(cell: Cell) -> np.ndarray:
        right = {
            n.removeprefix("pred:"): (v == cell["target"]).astype(float) for n, v in cell.items() if n[:5] == "pred:"
        }
        if pillar == "clean":
            return right["clean"]
        if pillar == "missing":
            return np.mean([right[f"missing:{k}"] for k in raw.modalities], axis=0)

        def area(stem: str) -> np.ndarray:
            line = np.stack([right["clean"], *(right[f"{stem}:{s}"] for s in range(1, 6))])
            return (line[:-1] + line[1:]).sum(axis=0) * 0.1  # trapezoids

        own = [np.mean([area(f"single:{k}:{c}") for c in cs], axis=0) for k, cs in raw.corruptions.items()]
        return (np.mean(own, axis=0) + area("joint")) / 2 - right["clean"]

    return {label: np.stack([of(cell) for cell in several]) for label, several in raw.cells.items()}


@pytest.mark.parametrize("pillar", ["clean", "robust", "missing"])
def test_advantages_and_intervals(folder: Path, board: Board, pillar: str) -> None:
    raw = Raw(folder)
    x = _by_row(raw, pillar)
    measure = {"clean": "clean", "robust": "drop", "missing": "missing"}[pillar]
    room = 1 - raw.trivial
    placed = [s for s in board.order(pillar) if s.method in x and s.method != CONTROL]
    assert len(placed) == 3
    for s in placed:
        value, half = _moderated(x, {s.method: 1.0, CONTROL: -1.0})
        assert s.high is not None and s.advantage == pytest.approx(value / room, abs=1e-6)
        assert s.high - s.advantage == pytest.approx(half / room, rel=ROUNDED), s.method
        assert s.by_dataset[DATASET] == ("tie" if abs(value) <= half else "win" if value > 0 else "loss")
        own = _row(board, s.method).entries[DATASET].measures[measure]
        alone = _moderated(x, {s.method: 1.0})[1] / (1 if pillar == "clean" else room)
        assert own.half == pytest.approx(alone, rel=ROUNDED), s.method


def test_the_interval_of_a_gain(folder: Path, board: Board) -> None:
    raw = Raw(folder)
    best = max((m for m in raw.cells if m.startswith("unimodal")), key=lambda m: float(np.mean(raw.validation[m])))
    assert board.datasets[0].unimodal == best
    for label in ("gated", "late"):
        value, half = _moderated(_by_row(raw, "clean"), {label: 1.0, best: -1.0})
        found = _row(board, label).entries[DATASET].measures["gain"]
        assert found.mean == pytest.approx(value, abs=1e-6)
        assert found.half == pytest.approx(half, rel=ROUNDED)
