"""Lightning's loggers: off unless asked for, one run per stage, a missing package is said before the first epoch."""

import csv
from pathlib import Path
from typing import Any

import pytest

from benchmark import loggers
from benchmark.errors import UsageError
from benchmark.loggers import LOGGERS, Log, check_logger
from benchmark.runner import run_cell
from leaderboard.record import Cell
from leaderboard.store import Store
from tests.benchmark.conftest import planned


@pytest.fixture
def cell() -> Cell:
    """Two stages trained by gradient: coordination and its probe."""
    return planned(methods=["contrastive"], recipe={"width": 8, "epochs": 2, "batch_size": 50}).cells[0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.prepare()
    return store


def test_no_logger_writes_nothing(cell: Cell, store: Store) -> None:
    assert run_cell(cell, store).status == "ok"
    assert not (store.folder / "logs").exists()


def test_curves_of_every_stage_are_the_history_of_the_record(cell: Cell, store: Store) -> None:
    stale = store.folder / "logs" / cell.id / "old"
    stale.mkdir(parents=True)  # of a try that failed
    record = run_cell(cell, store, logger="csv")
    assert record.status == "ok", record.error
    folder = store.folder / "logs" / cell.id
    assert sorted(path.name for path in folder.iterdir()) == ["0-coordinate", "1-probe"]
    for path, stage in zip(sorted(folder.iterdir()), record.training, strict=True):
        with (path / "metrics.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [int(row["epoch"]) for row in rows] == list(range(stage.epochs))
        for row, history in zip(rows, stage.history, strict=True):
            logged = {name: float(value) for name, value in row.items() if name not in ("epoch", "step")}
            assert logged == pytest.approx(history) and any(name.startswith("train/") for name in logged)
        assert cell.dataset in (path / "hparams.yaml").read_text()


def test_tensorboard_writes_its_events(cell: Cell, store: Store) -> None:
    assert run_cell(cell, store, logger="tensorboard").status == "ok"
    assert len(list((store.folder / "logs" / cell.id).glob("*/events.out.tfevents.*"))) >= 2


def test_a_missing_package_is_said_before_the_first_epoch(
    cell: Cell, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    check_logger(None)
    check_logger("csv")
    for name in ("wandb", "mlflow", "tensorboard"):
        with pytest.raises(UsageError, match=f"--logger {name} needs the package `{name}`"):
            check_logger(name)
    record = run_cell(cell, store, logger="wandb")
    assert record.status == "failed" and not record.training
    with pytest.raises(UsageError, match=r"no logger 'wand'\. Known: csv, tensorboard, wandb, mlflow"):
        check_logger("wand")


@pytest.mark.parametrize("name", LOGGERS)
def test_every_logger_gets_the_cell_and_the_stage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages need not be installed: what counts is what they are given."""
    from lightning.pytorch import loggers as lightning_loggers

    given: list[Any] = []

    class Recorded:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            given.append((arguments, named))

        def log_hyperparams(self, config: dict[str, Any]) -> None:
            given.append(config)

    (made,) = [kind for kind in lightning_loggers.__all__ if kind.lower() == f"{name}logger"]
    monkeypatch.setattr(lightning_loggers, made, Recorded)
    assert isinstance(Log(name, tmp_path / "the-cell", {"seed": 3}).of_stage(1, "probe"), Recorded)
    (arguments, named), config = given
    if name in ("wandb", "mlflow"):  # what is kept elsewhere carries the cell in its title
        assert "the-cell/1-probe" in named.values() and "polymodal" in (*arguments, *named.values())
        assert str(named["save_dir"]) == str(tmp_path / "the-cell" / "1-probe")
    else:
        assert arguments == (tmp_path / "the-cell",) and named["version"] == "1-probe"
    assert config == {"seed": 3, "stage": "probe"}
