"""Kills at scale: commands that are killed at random moments and started again end as if nobody had.

A parent imports everything once and forks the runners, which fork their workers: a kill costs a fraction of a second
instead of the ten that importing torch twice takes. Everything else is the real thing: the command line, its workers,
the store, its locks.

Run by `make kill N=1000`; `tests/kill/test_kills.py` does a few.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import benchmark.runner  # noqa: F401 - what runners and workers need, imported once
from benchmark.cli import main as polymodal
from benchmark.executors import foreground, local  # noqa: F401
from benchmark.executors.lifeline import die_with
from benchmark.matrix import read
from benchmark.plan import make_plan
from leaderboard import export
from leaderboard import store as store_
from leaderboard.store import Store
from tests.benchmark.conftest import numbers

MATRIX = """seeds = 3
conditions = ["missing"]
methods = ["concat", { name = "cca", views = "raw" }]
baselines = false
datasets = [{ name = "interactions_xor", rows = 100 }]
[recipe]
width = 4
epochs = 2
batch_size = 50
"""
PUBLISHED = "published/results.parquet"
_SHARE = ("--workers", "2", "--quiet", "--no-checkpoints")


@dataclass(frozen=True)
class Command:
    """A command line, whether it has workers, and how many files one of its processes writes."""

    line: tuple[str, ...]
    workers: bool = True
    writes: int = 6


COMMANDS = {
    "run": Command(("run", "matrix.toml", *_SHARE)),
    "tune": Command(("tune", "matrix.toml", "--trials", "2", *_SHARE)),
    "claims": Command(("claims", "run", "small_claim", "--own", *_SHARE), writes=10),
    "export": Command(("export", "--output", PUBLISHED, "--publish"), workers=False, writes=2),
}
_DIED = "died"  # in the folder of a command of which a process died in the middle of a write
KINDS = ("runner", "worker", "all workers", "everyone", "mid-write")
_PLACES = ("results", "results/trials", "results/claims")
_STUCK = 1800.0  # seconds after which a run is taken for hung; a machine with other work may starve it for minutes


class Broken(AssertionError):
    """What a kill must not do."""


@dataclass
class Tally:
    """What was done: kills by kind, campaigns by command."""

    kills: Counter[str]
    campaigns: Counter[str]

    def __str__(self) -> str:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = usage.ru_utime + usage.ru_stime
        kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(self.kills.items()))
        runs = ", ".join(f"{number} of {name}" for name, number in sorted(self.campaigns.items()))
        total = max(self.kills.total(), 1)
        return f"{self.kills.total()} kills ({kinds}) in {runs}; {cpu:.0f} s of CPU, {cpu / total:.2f} a kill"


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Workers are forked from a runner that has imported everything."""
    original = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: original("fork")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        multiprocessing.get_context = original


def start(command: tuple[str, ...], folder: Path, dies: Callable[[], None] = lambda: None) -> int:
    """Fork a runner in a process group of its own; its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        die_with(parent)
        os.setsid()
        os.chdir(folder)
        quiet = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        dies()
        code = polymodal(list(command))
    finally:
        os._exit(code)


def alive(group: int) -> list[int]:
    """The living processes of a runner's group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, of = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:3]
                if int(of) == group and state != "Z":
                    found.append(int(entry.name))
    return found


def in_the_middle_of_a_write(writes: int, moments: random.Random) -> Callable[[], None]:
    """Makes the process that does the n-th write die when a part of it is on disk, or between two of its steps."""
    number, share = moments.randrange(1, writes + 1), moments.random()
    step = moments.choice(("fsync", "replace"))

    def die() -> None:
        Path(_DIED).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def arm() -> None:
        counts: Counter[int] = Counter()
        sync, replace = os.fsync, os.replace

        def dying_sync(handle: int) -> None:
            counts[0] += 1
            if step == "fsync" and counts[0] == number:
                os.ftruncate(handle, int(os.fstat(handle).st_size * share))
                die()
            sync(handle)

        def dying_replace(source: str, target: Path) -> None:
            counts[1] += 1
            if step == "replace" and counts[1] == number:
                die()
            replace(source, target)

        store_.os.fsync, store_.os.replace = dying_sync, dying_replace  # pyright: ignore[reportAttributeAccessIssue]

    return arm


def killed(command: Command, folder: Path, length: float, moments: random.Random) -> str | None:
    """Run the command and kill some of it within `length` seconds; who was killed, or None if it had ended before."""
    kind = moments.choice(KINDS if command.workers else ("runner", "mid-write"))
    dies = in_the_middle_of_a_write(command.writes, moments) if kind == "mid-write" else lambda: None
    runner, moment = start(command.line, folder, dies), time.monotonic() + moments.uniform(0, length)
    workers: list[int] = []
    # Who is to lose workers is given the time to have some.
    while kind != "mid-write" and (time.monotonic() < moment or ("worker" in kind and not workers)):
        if _ended(runner):
            return None
        time.sleep(0.002)
        if time.monotonic() >= moment:
            workers = [pid for pid in alive(runner) if pid != runner]
    workers = [pid for pid in alive(runner) if pid != runner]
    targets = {
        "runner": [runner],
        "worker": workers[:1],
        "all workers": workers,
        "everyone": [*workers, runner],
        "mid-write": [],
    }[kind]
    for pid in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _wait(runner)
    deadline = time.monotonic() + 300
    while left := alive(runner):
        if time.monotonic() > deadline:
            raise Broken(f"{len(left)} workers outlive their runner ({kind})")
        time.sleep(0.01)
    died = folder / _DIED
    happened = died.exists() if kind == "mid-write" else bool(targets)
    died.unlink(missing_ok=True)
    return kind if happened else None


_codes: dict[int, int] = {}


def _ended(pid: int) -> bool:
    if pid not in _codes:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            _codes[pid] = os.waitstatus_to_exitcode(status)
    return pid in _codes


def _wait(pid: int) -> int:
    deadline = time.monotonic() + _STUCK
    while not _ended(pid):
        if time.monotonic() > deadline:
            os.killpg(pid, signal.SIGKILL)
            raise Broken(f"a run hangs for {_STUCK:g} s")
        time.sleep(0.005)
    return _codes.pop(pid)


def outcome(folder: Path) -> dict[str, object]:
    """Everything that is a result: records without their times, every prediction, and what was written of them."""
    check(folder)
    found: dict[str, object] = {}
    for place in _PLACES:
        if (folder / place).is_dir():
            found |= numbers(folder / place)
            if strays := [path.name for path in (folder / place).glob(".*.tmp")]:
                raise Broken(f"half files: {strays[:3]}")
    written = [folder / "results" / "tuned.toml", folder / PUBLISHED, *(folder / "results/claims/page").rglob("[!.]*")]
    return found | {path.name: path.read_bytes() for path in written if path.is_file()}


def check(folder: Path) -> None:
    """What holds after every kill: each file that is there is whole.

    Raises:
        Broken: If one is not.
    """
    for place in _PLACES if (folder / "results").is_dir() else ():
        if invalid := [v for v in Store(folder / place).verify() if v.status == "invalid"]:
            raise Broken(f"invalid: {invalid[:3]}")
    if (folder / PUBLISHED).exists():
        export.read(folder / PUBLISHED)


def undisturbed(name: str, parent: Path) -> tuple[dict[str, object], float]:
    """What the command gives when nobody kills it, and how long it takes."""
    folder = _fresh(parent, name, "undisturbed")
    started = time.monotonic()
    if _wait(start(COMMANDS[name].line, folder)) != 0:
        raise Broken((folder / "log.txt").read_text()[-2000:])
    return outcome(folder), time.monotonic() - started


def _fresh(parent: Path, name: str, kind: str) -> Path:
    folder = parent / f"{name}-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "matrix.toml").write_text(MATRIX)
    if name == "export":
        shutil.copytree(parent / "run-undisturbed" / "results", folder / "results")
    return folder


def campaign(kills: int, seed: int, say: Callable[[str], object] = print) -> Tally:
    """Kill until there were so many kills; after every eight or so, let the command end and compare.

    Raises:
        Broken: If a record was lost or differs, a file is invalid, a half file stays, or a process outlives its runner.
    """
    import tests.kill.small_claim  # noqa: F401 - a claim that only this process and its children know

    moments, tally = random.Random(seed), Tally(Counter(), Counter())
    with tempfile.TemporaryDirectory() as name, forked_workers():
        parent = Path(name)
        (parent / "matrix.toml").write_text(MATRIX)
        make_plan(read(str(parent / "matrix.toml")))  # what planning looks up once is looked up before the forks
        gc.freeze()  # each cell collects garbage once: more than half of what so small a one takes
        expected = {command: undisturbed(command, parent) for command in COMMANDS}
        while tally.kills.total() < kills:
            command = moments.choice(sorted(COMMANDS))
            (wanted, length), folder = expected[command], _fresh(parent, command, "disturbed")
            for _ in range(8):
                # Within the time that what is left of it takes, or there would soon be nothing to kill.
                left = 1 - len(_there(folder)) / len(_there(parent / f"{command}-undisturbed"))
                kind = killed(COMMANDS[command], folder, length * max(left, 0.2), moments)
                check(folder)
                if kind is None:
                    break
                tally.kills[kind] += 1
            _finish(COMMANDS[command].line, folder)
            if outcome(folder) != wanted:
                kept = shutil.copytree(folder, tempfile.mkdtemp(), dirs_exist_ok=True)
                raise Broken(f"{command} differs from the undisturbed run (seed {seed}): see {kept}")
            tally.campaigns[command] += 1
            shutil.rmtree(folder)
            if tally.campaigns.total() % 10 == 0:
                say(str(tally))
    gc.unfreeze()
    return tally


def _there(folder: Path) -> list[Path]:
    """Records and exports."""
    return [path for path in folder.rglob("*") if path.suffix in (".json", ".parquet")]


def _finish(command: tuple[str, ...], folder: Path) -> None:
    """Let the command end; a cell that a dead worker left as failed runs again the next time."""
    for _ in range(3):
        if _wait(start(command, folder)) == 0:
            return
    raise Broken((folder / "log.txt").read_text()[-2000:])


def main() -> int:
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    started = time.monotonic()
    print(f"seed {seed}", flush=True)
    tally = campaign(kills, seed, lambda text: print(text, flush=True))
    print(f"{tally}; {time.monotonic() - started:.0f} s. Every record equals the undisturbed run's.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
