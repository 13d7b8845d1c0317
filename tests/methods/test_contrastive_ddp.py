"""Two gloo processes: losses that look across rows must have the gradients of one process that saw all rows.

The file is its own worker: `python test_contrastive_ddp.py RANK FOLDER`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

ROWS = 72  # of both processes together
NAMES = ("contrastive", "contrastive_hinge", "dcca", "dccae")


def rows(views: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(ROWS, 3, generator=generator)
    return [torch.cat([shared, torch.randn(ROWS, 2 + v, generator=generator)], 1) for v in range(views)]


def share_of(rank: int) -> slice:
    return slice(0, ROWS // 2) if rank == 0 else slice(ROWS // 2, ROWS)


def gradients(name: str, mine: slice) -> dict[str, Tensor]:
    """Of the method's own coordination loss, for these rows."""
    from datamodules.spec import Batch, Modality, Task
    from methods.base import Recipe
    from methods.parts.distributed import global_batch
    from methods.registry import methods

    task = Task("two", "1", (Modality("a", "vector", (5,)), Modality("b", "vector", (6,))), "multiclass", 3)
    torch.manual_seed(0)
    options = {"components": 3, "same_id": "target"} if name.startswith("contrastive") else {"components": 3}
    method = methods.get(name)(task, Recipe(width=8, batch_size=ROWS), **options).double()
    a, b = (x[mine].double() for x in rows())
    target = torch.arange(ROWS)[mine] // 2  # every row has one duplicate, some of them on the other rank
    batch = Batch({"a": a, "b": b}, target, torch.ones(len(a), 2, dtype=torch.bool), torch.arange(ROWS)[mine])
    out = method(batch.inputs, batch.present)
    if dist.is_initialized():  # as the base does it
        out, batch = global_batch(out, batch)
    terms = method.coordinate(out, batch)
    torch.stack(list(terms.values())).sum().backward()
    return {n: p.grad for n, p in method.named_parameters() if p.grad is not None}


def naive(mine: slice) -> Tensor:
    """The gradient without a gather: what the test must tell from the right one."""
    from methods.functional.coordination import clip_loss

    torch.manual_seed(0)
    w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    a, b = (x[mine].double() for x in rows())
    clip_loss(a @ w, b[:, :3], 5.0).backward()
    assert w.grad is not None
    return w.grad


def summed(rank: int) -> Tensor:
    """The gradient by this rank's x of what both ranks make of the sum over ranks."""
    from methods.parts.distributed import rank_sum

    x = torch.tensor([1.0 + rank], requires_grad=True)
    (rank_sum(x).square() * (rank + 1)).sum().backward()
    assert x.grad is not None
    return x.grad


def worker(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found: dict[str, dict[str, Tensor]] = {}
    for name in NAMES:
        mine = gradients(name, share_of(rank))
        for grad in mine.values():  # what DDP does
            dist.all_reduce(grad)
            grad /= 2
        found[name] = mine
    without = naive(share_of(rank))
    dist.all_reduce(without)
    found["naive"] = {"w": without / 2}
    found["sum"] = {"x": summed(rank)}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ranks")
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__))]
    ranks = [subprocess.Popen([*command, str(r), str(folder)], env=environment, cwd=root) for r in (0, 1)]
    try:
        assert [p.wait(timeout=240) for p in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
    return [torch.load(folder / f"{r}.pt", weights_only=True) for r in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_processes_have_the_gradients_of_one(name: str, both: list[dict[str, dict[str, Tensor]]]) -> None:
    expected = gradients(name, slice(0, ROWS))
    assert any(float(g.abs().max()) > 1e-4 for g in expected.values())
    for found in both:
        assert found[name].keys() == expected.keys()
        for parameter, grad in expected.items():
            torch.testing.assert_close(found[name][parameter], grad, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_without_a_gather_the_gradient_is_another(both: list[dict[str, dict[str, Tensor]]]) -> None:
    assert float((both[0]["naive"]["w"] - naive(slice(0, ROWS))).abs().max()) > 1e-3


@pytest.mark.slow
def test_the_gradient_of_a_sum_over_ranks_is_summed_over_ranks(both: list[dict[str, dict[str, Tensor]]]) -> None:
    # The sum is 3; d/dx of 3^2 * 1 + 3^2 * 2 is 2 * 3 * 3, on either rank.
    assert [float(found["sum"]["x"]) for found in both] == [18.0, 18.0]


if __name__ == "__main__":
    worker(int(sys.argv[1]), Path(sys.argv[2]))
