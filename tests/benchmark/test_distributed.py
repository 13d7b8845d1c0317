"""One cell on many devices: the numbers of one, whatever the method; one process that fails ends them all.

The file is its own rank: `python test_distributed.py RANK FOLDER half|full`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

from benchmark import distributed, precision
from benchmark.conformance.probe import Probe
from benchmark.matrix import Choice, Matrix
from benchmark.options import UsageError
from benchmark.plan import make_plan
from benchmark.seeds import seed_all
from benchmark.trainer import TrainerOptions, fit, make_trainer
from datamodules.base import Split
from datamodules.spec import Batch
from leaderboard.store import Store
from methods.base import Method, Output, Recipe
from methods.concat import Concat
from methods.registry import methods
from tests.benchmark.conftest import ENVIRONMENT, FAULTY

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = ("concat", "tensor", "contrastive", "cca", "emma")  # to 1e-5 after 40 steps
RECIPE = Recipe(width=8, epochs=4, batch_size=32, lr=1e-2, patience=4)  # of 160 rows: ten steps of 16 an epoch


class Incomplete(Probe):
    """The probe with validation batches to share, and rows that lack a modality."""

    def load(self) -> dict[Any, Split]:
        splits = super().load()
        whole = splits["train"]
        rows = torch.arange(600) % len(whole.target)
        splits["val"] = Split({name: x[rows] for name, x in whole.inputs.items()}, whole.target[rows])
        if self.task.names[0] == "left":  # two images: every loss over "the rows that have it" is met there
            lacks = torch.ones(len(whole.target), 2, dtype=torch.bool)
            lacks[::5, 0], lacks[1::7, 1] = False, False
            lacks[~lacks.any(dim=1)] = True
            splits["train"] = whole._replace(present=lacks)
        return splits


def probe_of(name: str) -> str:
    attention = name in ("softmax_attention", "sparsemax_attention", "continuous_softmax", "continuous_sparsemax")
    return "image_text" if attention or name == "mixture_attention" else "images"


def cases() -> tuple[str, ...]:
    """Every method; every kind of target, whose scores are gathered differently."""
    targets = ("regression", "multilabel", "retrieval", "answers")
    trained = [name for name in methods.names() if name != "zero_shot"]  # that one trains nothing
    return (*trained, "contrastive@pairs", *(f"concat@{target}" for target in targets))


def trained(case: str, devices: int, numbers: str = "64-true") -> dict[str, Any]:
    """Logits and reports of a method after its stages."""
    name, _, shape = case.partition("@")
    datamodule = Incomplete(shape=shape or probe_of(name))
    cls: type[Method] = methods.get(name)
    seed_all("test", 0)
    recipe = RECIPE if case in ACCEPTED else replace(RECIPE, epochs=2)
    if name == "compact_bilinear":
        # At a rate of 1e-2 one process is 3e-3 from itself after ten steps if its sketches change in the last digit (we
        # suspect the square root near zero), and no comparison could tell that from an error of ours.
        recipe = replace(recipe, lr=1e-3)
    method = cls(datamodule.task, recipe, **cls.variants(datamodule.task)[0])
    stages = fit(method, datamodule, options=TrainerOptions("cpu", devices, "ddp", numbers))
    batch = datamodule.ordered("test").take(slice(0, 64))
    with torch.no_grad():
        out = method(batch.inputs, batch.present)
    assert out.fused.dtype == (torch.float64 if numbers == "64-true" else torch.float32)
    kept = ("name", "steps", "best_epoch", "best_score")
    told = [{k: v for k in kept if (v := getattr(s, k)) is not None} for s in stages]
    return {"logits": out.logits, "stages": told}


def rank_main(rank: int, folder: Path, half: str) -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {case: trained(case, 2) for case in cases()}
    if half == "half":  # rows are gathered in the type they have
        found |= {f"{name} in half": trained(name, 2, "bf16-mixed") for name in ("late", "contrastive")}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


def on_two_processes(folder: Path, half: bool) -> list[dict[str, dict[str, Any]]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command, last = [sys.executable, str(Path(__file__))], "half" if half else "full"
    ranks = [subprocess.Popen([*command, str(r), str(folder), last], env=environment, cwd=ROOT) for r in (0, 1)]
    try:
        assert [p.wait(timeout=1200) for p in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
    return [torch.load(folder / f"{r}.pt", weights_only=True) for r in (0, 1)]


def difference(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest, of logits and of what the stages report; infinite if they took other steps or decisions."""
    largest = float((found["logits"] - expected["logits"]).abs().max())
    for mine, theirs in zip(found["stages"], expected["stages"], strict=True):
        largest = max(largest, abs(mine.pop("best_score", 0.0) - theirs.get("best_score", 0.0)))
        if mine != {k: v for k, v in theirs.items() if k != "best_score"}:
            return float("inf")
    return largest


@pytest.mark.slow
def test_two_devices_give_the_numbers_of_one(tmp_path: Path) -> None:
    """Every registered method, in one test: starting the processes costs more than training."""
    half = precision._problem("bf16-mixed", "cpu") is None
    both = on_two_processes(tmp_path, half)
    assert set(ACCEPTED) < set(methods.names()) - {"zero_shot"} < both[0].keys()
    torch.set_num_threads(1)
    apart = {}
    for case in cases():
        expected = trained(case, 1)
        if case in ACCEPTED:
            assert sum(stage["steps"] for stage in expected["stages"]) == 40, case
        apart[case] = max(difference(found[case], expected) for found in both)
    assert {case: gap for case, gap in apart.items() if not gap <= 1e-5} == {}
    for case in ("late in half", "contrastive in half") if half else ():
        logits = [found[case]["logits"] for found in both]
        assert bool(logits[0].isfinite().all()) and torch.equal(*logits), case


LONELY = '''"""Fails on one of two devices while the other waits for it."""
import os

from methods import Method, register


@register("lonely")
class Lonely(Method):
    """Fails on the second device."""

    family = "test"

    def __init__(self, task, recipe):
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z, present):
        if os.environ.get("RANK") == "1" and self.training:
            raise RuntimeError("only here")
        return z.mean(dim=1)
'''


@pytest.mark.slow
def test_a_run_on_two_devices_writes_the_record_of_one(
    tmp_path: Path, polymodal: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a worker process, with a plugin; of three cells that fail, each says why, and the others go on."""
    monkeypatch.setitem(ENVIRONMENT, "POLYMODAL_TEST_FOLDER", str(tmp_path))
    lonely = tmp_path / "lonely.py"
    lonely.write_text(LONELY)
    matrix = ["--datasets", "interactions_xor", "--set", "interactions_xor.rows=400", "--conditions", "missing",
              "--set", "recipe.epochs=2", "--set", "recipe.width=8", "--set", "recipe.batch_size=100",
              "--set", "trainer.accelerator=cpu", "--no-baselines", "--workers", 1, "--seeds", 1,
              "--plugin", FAULTY, "--plugin", lonely]  # fmt: skip
    one = polymodal("run", *matrix, "--methods", "steady", "--results", tmp_path / "one")
    assert one.returncode == 0, one.stderr
    two = polymodal("run", *matrix, "--methods", "steady,raises,dies,lonely", "--devices", 2,
                    "--logger", "csv", "--results", tmp_path / "two")  # fmt: skip
    assert two.returncode == 1, two.stderr
    (alone,) = Store(tmp_path / "one").scan().records
    records = {r.cell.method: r for r in Store(tmp_path / "two").scan().records}
    assert (alone.provenance["world_size"], alone.provenance["batch_size"]) == (1, {"global": 100, "per_device": 100})
    shared = records["steady"]
    assert shared.status == "ok" and shared.cell.id == alone.cell.id
    assert (shared.provenance["world_size"], shared.provenance["batch_size"]) == (2, {"global": 100, "per_device": 50})
    assert shared.cost["devices"] == 2 and shared.cost["train_seconds"] > 0
    assert [c.score for c in shared.conditions] == pytest.approx([c.score for c in alone.conditions], abs=0.01)
    assert [s.steps for s in shared.training] == [s.steps for s in alone.training]
    assert (tmp_path / "two" / "logs" / shared.cell.id / "0-train" / "metrics.csv").is_file()
    raised = records["raises"].error
    assert raised.type == "RankFailed" and "RuntimeError: on purpose" in raised.message
    assert "in auxiliary" in raised.traceback  # where, in the rank
    assert "SIGKILL" in records["dies"].error.message
    # The cause, not the broken connection that the other rank saw.
    assert records["lonely"].error.message == "rank 1 of 2: RuntimeError: only here"


@pytest.mark.slow
def test_ranks_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "benchmark.cli", "run", "--plugin", FAULTY, "--methods", "takes_its_time",
               "--datasets", "interactions_xor", "--no-baselines", "--seeds", 1, "--devices", 2, "--workers", 0,
               "--set", "trainer.accelerator=cpu", "--results", tmp_path / "results"]  # fmt: skip
    process = subprocess.Popen(list(map(str, command)), env=environment, cwd=tmp_path)
    try:
        ranks = wait_for(lambda: found if len(found := children(process.pid)) == 2 else None)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))


def children(pid: int) -> list[int]:
    """Processes that train for this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"benchmark.distributed" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def wait_for(condition: Callable[[], Any], seconds: float = 300) -> Any:
    ends = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.05)
    return value


def test_a_batch_that_devices_cannot_share_is_an_error_of_the_plan() -> None:
    matrix = Matrix("t.toml", (Choice("concat"),), (Choice("digit_halves"),), recipe={"batch_size": 100},
                    trainer={"devices": 3})  # fmt: skip
    with pytest.raises(UsageError, match=r"100 rows .* 3 devices.*divisible by 3 \(t.toml"):
        make_plan(matrix)
    assert TrainerOptions(devices=4).share(100) == 25


@pytest.mark.parametrize(
    "wrong", [{"devices": 0}, {"devices": True}, {"strategy": "fsdp"}, {"accelerator": "tpu"}, {"precision": "8"}]
)
def test_the_trainer_table_of_a_matrix_is_checked(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=f"trainer: `{name}` must be"):
        TrainerOptions(**wrong)


def test_many_devices_need_their_processes() -> None:
    """Lightning would start them by running the command line again."""
    with pytest.raises(RuntimeError, match="2 devices need as many processes"):
        make_trainer(TrainerOptions(devices=2, accelerator="cpu"))


def test_more_gpus_than_there_are_is_one_error(tmp_path: Path) -> None:
    matrix = Matrix("t", (Choice("concat"),), (Choice("digit_halves"),), baselines=False,
                    trainer={"devices": 4, "accelerator": "cuda"})  # fmt: skip
    (cell,) = make_plan(matrix).cells
    method = methods.get("concat")(Probe().task, RECIPE)
    with (
        patch("torch.cuda.device_count", return_value=2),
        pytest.raises(UsageError, match="`devices` = 4, but this machine shows 2"),
    ):
        distributed.train(cell, method, TrainerOptions(**cell.trainer))


def test_ranks_get_the_gpus_from_the_workers_own_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with patch("torch.cuda.device_count", return_value=4), patch("torch.cuda.current_device", return_value=3):
        visible = distributed._visible(TrainerOptions(devices=2, accelerator="cuda"))
    assert visible == {"CUDA_VISIBLE_DEVICES": "7,4"}
    assert distributed._visible(TrainerOptions(devices=2, accelerator="cpu")) == {}


def test_batch_norms_of_plugins_are_named_where_they_cannot_be_shared() -> None:
    method = methods.get("concat")(Probe().task, RECIPE)
    assert distributed.notes(method, TrainerOptions(devices=2, accelerator="cpu")) == []
    method.norm = torch.nn.BatchNorm1d(3)
    assert "norm" in distributed.notes(method, TrainerOptions(devices=2, accelerator="cpu"))[0]
    assert distributed.notes(method, TrainerOptions(accelerator="cpu")) == []


def test_training_goes_on_as_if_validation_had_drawn_nothing() -> None:
    """A loss that draws noise draws it in validation too: on many devices ranks would part, on one it would matter."""
    datamodule = Probe(shape="images")
    states = []

    class Noisy(Concat):
        def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
            if not torch.is_grad_enabled():
                torch.rand(1000)
            else:
                states.append(torch.get_rng_state())
            return {}

    (report,) = fit(Noisy(datamodule.task, replace(RECIPE, epochs=2)), datamodule)
    assert len(states) == report.steps > 2 and all(torch.equal(states[0], state) for state in states)


if __name__ == "__main__":
    rank_main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
