"""The pool, with workers that are not processes: who is tried again, what is recorded, when it ends."""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from benchmark.executors import pool as pool_
from benchmark.executors.local import default_workers, gpus_of
from benchmark.executors.pool import Backend, Message, Pool, ResultsLost, Settings, Stop, Worker, WorkerDied
from benchmark.runner import write_failure
from leaderboard.record import Cell
from leaderboard.store import Store
from tests.benchmark.conftest import planned

Answer = Callable[[Cell], Message | None]


@pytest.fixture(scope="module")
def cells() -> tuple[Cell, ...]:
    return planned(seeds=4).cells


class Actor(Worker):
    """Says what the test wants it to say."""

    def __init__(self, slot: int, answer: Answer) -> None:
        self.slot, self.answer = slot, answer
        self.messages: deque[Message] = deque()
        self.killed = False

    def start(self) -> None:
        self.messages.append(Message("ready"))

    def send(self, cell: Cell) -> None:
        if (message := self.answer(cell)) is not None:
            self.messages.append(message)

    def kill(self) -> None:
        self.killed = True


class Stage(Backend):
    """A backend of actors."""

    tries = 3
    false_starts = 2

    def __init__(self, answer: Answer, places: int = 2) -> None:
        self.answer, self.room = answer, places
        self.hired: list[Actor] = []
        self.closed = False

    def places(self) -> int:
        return self.room

    def hire(self, slot: int) -> Actor:
        self.hired.append(Actor(slot, self.answer))
        return self.hired[-1]

    def listen(self, workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        return [(w, w.messages.popleft()) for w in workers if isinstance(w, Actor) and w.messages]

    def close(self) -> None:
        self.closed = True


def run(backend: Stage, cells: Sequence[Cell], folder: Path, stop: Stop | None = None, **settings: float) -> list[str]:
    """What came of each cell, by seed: its status, or the message of its failure."""
    given = Settings(str(folder), **settings)  # pyright: ignore[reportArgumentType]
    records = list(Pool(cells, given, stop or Stop(), backend).run())
    assert backend.closed and all(worker.killed for worker in backend.hired)
    assert len({record.cell.seed for record in records}) == len(records), "a cell was reported twice"
    return [r.error.message if r.error else r.status for r in sorted(records, key=lambda r: r.cell.seed)]


def well(folder: Path) -> Answer:
    """A cell that works; what it leaves is a record, any record."""

    def answer(cell: Cell) -> Message | None:
        return Message("finished", write_failure(cell, Store(folder), RuntimeError("done")).to_json())

    return answer


def test_every_cell_once(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    backend = Stage(well(tmp_path))
    assert run(backend, cells, tmp_path) == ["done"] * 4
    assert [worker.slot for worker in backend.hired] == [0, 1]


def test_a_worker_has_its_next_cell_before_the_record_is_shown(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    """Whatever is done with a record, however slowly, happens while the worker works."""
    begun: list[int] = []

    def answer(cell: Cell) -> Message | None:
        begun.append(cell.seed)
        return well(tmp_path)(cell)

    pool = Pool(cells, Settings(str(tmp_path)), Stop(), Stage(answer, places=1))
    assert [len(begun) for _ in pool.run()] == [2, 3, 4, 4]


def test_a_lost_cell_is_tried_again_by_another_worker(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    losses = [0, 0]

    def answer(cell: Cell) -> Message | None:
        if cell.seed == 1 and len(losses) > 0:
            losses.pop()
            return Message("lost", "node gone")
        return well(tmp_path)(cell)

    backend = Stage(answer)
    assert run(backend, cells, tmp_path) == ["done"] * 4
    assert not losses and len(backend.hired) >= 3


def test_a_poisoned_cell_fails_after_its_tries(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    backend = Stage(lambda cell: Message("lost", "boom") if cell.seed == 2 else well(tmp_path)(cell))
    found = run(backend, cells, tmp_path)
    assert found[2] == "the worker died in the middle of this cell, 3 times: boom"
    assert found[:2] + found[3:] == ["done"] * 3
    record = Store(tmp_path).read(cells[2].id)
    assert record and record.status == "failed"
    once = Stage(lambda cell: Message("lost", "boom"))
    assert run(once, cells[:1], tmp_path, tries=1) == ["the worker died in the middle of this cell: boom"]


def test_a_cell_that_hangs_is_cut_off(cells: tuple[Cell, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100_000))
    monkeypatch.setattr(pool_.time, "monotonic", lambda: float(next(clock)))
    backend = Stage(lambda cell: None if cell.seed == 0 else well(tmp_path)(cell))
    assert run(backend, cells, tmp_path, timeout=50) == ["timed out after 50 s (--cell-timeout)", *["done"] * 3]


def test_nothing_is_started_after_a_stop(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    stop = Stop()

    def answer(cell: Cell) -> Message | None:
        stop.set()
        return well(tmp_path)(cell)

    assert run(Stage(answer, places=1), cells, tmp_path, stop) == ["done"]


def test_a_folder_that_cannot_be_written_ends_the_run_after_the_running_cells(
    cells: tuple[Cell, ...], tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    asked: list[int] = []

    def answer(cell: Cell) -> Message | None:
        asked.append(cell.seed)
        return Message("unstored", "no space") if cell.seed == 0 else well(tmp_path)(cell)

    backend = Stage(answer)
    with pytest.raises(ResultsLost, match=r"cannot write to the results folder .*no space"):
        run(backend, cells, blocked)
    assert len(asked) <= 2 and backend.closed


def test_workers_that_never_start_end_the_run(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    class Dead(Actor):
        def start(self) -> None:
            self.messages.append(Message("lost", "exit code 1"))

    class Empty(Stage):
        def hire(self, slot: int) -> Actor:
            self.hired.append(Dead(slot, self.answer))
            return self.hired[-1]

    backend = Empty(well(tmp_path))
    with pytest.raises(WorkerDied, match="could not start"):
        run(backend, cells, tmp_path)
    assert len(backend.hired) == 2 and backend.closed


def test_workers_killed_while_they_start_are_replaced(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    class Stillborn(Stage):
        def hire(self, slot: int) -> Actor:
            actor = super().hire(slot)
            if len(self.hired) in (1, 3):  # never two in a row
                actor.start = lambda: actor.messages.append(Message("lost", "signal SIGKILL"))
            return actor

    assert run(Stillborn(well(tmp_path)), cells, tmp_path) == ["done"] * 4


def test_a_worker_that_dies_idle_takes_nothing_with_it(cells: tuple[Cell, ...], tmp_path: Path) -> None:
    fates = deque([Message("locked", "process 1 on a"), Message("lost", "signal SIGKILL")])
    backend = Stage(lambda cell: fates.popleft() if len(fates) > 1 else well(tmp_path)(cell), places=1)
    original = backend.listen

    def listen(workers: Sequence[Worker], seconds: float) -> list[tuple[Worker, Message]]:
        idle = [w for w in workers if w.ready and w.cell is None]
        return [(idle[0], fates.popleft())] if idle and fates else original(workers, seconds)

    backend.listen = listen  # pyright: ignore[reportAttributeAccessIssue]
    assert run(backend, cells[:1], tmp_path) == ["done"]
    assert len(backend.hired) == 2


def test_a_cell_that_another_run_is_in_comes_last(
    cells: tuple[Cell, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100_000))
    monkeypatch.setattr(pool_.time, "monotonic", lambda: float(next(clock)))
    order: list[int] = []

    def answer(cell: Cell) -> Message | None:
        order.append(cell.seed)
        return Message("locked", "process 7 on elsewhere") if order.count(0) < 40 and cell.seed == 0 else free(cell)

    free = well(tmp_path)
    with pytest.warns(UserWarning, match=f"still waiting for process 7 on elsewhere, which is in cell {cells[0].id}"):
        assert run(Stage(answer, places=1), cells, tmp_path, timeout=1000) == ["done"] * 4
    assert order[:4] == [0, 1, 2, 3] and set(order[4:]) == {0}


def test_the_death_of_a_cell_that_another_run_is_in_is_not_ours_to_record(
    cells: tuple[Cell, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_, "_RETURN", 0.0)
    lock = Store(tmp_path).lock(cells[0].id)
    lock.__enter__()
    asked: list[int] = []

    def answer(cell: Cell) -> Message | None:
        asked.append(cell.seed)
        if len(asked) == 1:
            return Message("lost", "signal SIGKILL")
        lock.__exit__(None, None, None)
        return well(tmp_path)(cell)

    assert run(Stage(answer), cells[:1], tmp_path, tries=1) == ["done"] and asked == [0, 0]


def test_gpus_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert default_workers() == 8 and default_workers(per_gpu=3) == 24
    assert default_workers(devices=2) == 4 and default_workers(devices=3) == 2
    assert default_workers(devices=1, device="cpu") >= 1
    with pytest.raises(ValueError, match="a cell takes 16 GPUs"):
        default_workers(devices=16)
    with pytest.raises(ValueError, match="--workers-per-gpu"):
        default_workers(per_gpu=2, devices=2)
    assert [gpus_of(slot, 2, 8) for slot in range(5)] == ["0,1", "2,3", "4,5", "6,7", "0,1"]
    assert [gpus_of(slot, 1, 2, "5,GPU-a") for slot in range(4)] == ["5", "GPU-a", "5", "GPU-a"]
    assert [gpus_of(slot, 3, 8) for slot in range(3)] == ["0,1,2", "3,4,5", "0,1,2"]
