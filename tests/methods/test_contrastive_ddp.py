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
SHARES = {"even": (36, 36), "uneven": (40, 32)}
# Methods that gather in their loss bear unequal shares; the others get the global batch, which has equal ones.
CASES = [
    *((name, share) for name in ("contrastive", "contrastive_hinge") for share in SHARES),
    ("dcca", "even"),
    ("dccae", "even"),
]


def rows(views: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(ROWS, 3, generator=generator)
    return [torch.cat([shared, torch.randn(ROWS, 2 + v, generator=generator)], 1) for v in range(views)]


def share_of(rank: int, share: str) -> slice:
    first, _ = SHARES[share]
    return slice(0, first) if rank == 0 else slice(first, ROWS)


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
    if not method.gathers:
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


def correlation(mine: slice) -> Tensor:
    """The gradient of deep CCA's loss, gathered by itself."""
    from methods.functional.cca import dcca_loss

    torch.manual_seed(0)
    w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    a, b = (x[mine].double() for x in rows())
    dcca_loss(a @ w, b[:, 3:], 1e-2, distributed=True).backward()
    assert w.grad is not None
    return w.grad


def moments(mine: slice) -> dict[str, Tensor]:
    from methods.functional.coordination import StreamingCCA

    cca = StreamingCCA().partial_fit(*(x[mine] for x in rows(3))).merge_ranks()
    return {"count": torch.tensor(cca.count), "mean": cca.mean, "scatter": cca.scatter}


def worker(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found: dict[str, dict[str, Tensor]] = {}
    for name, share in CASES:
        mine = gradients(name, share_of(rank, share))
        for grad in mine.values():  # what DDP does
            dist.all_reduce(grad)
            grad /= 2
        found[f"{name}/{share}"] = mine
    without = naive(share_of(rank, "even"))
    dist.all_reduce(without)
    found["naive"] = {"w": without / 2}
    own = correlation(share_of(rank, "uneven"))
    dist.all_reduce(own)
    found["correlation"] = {"w": own / 2}
    found["moments/shared"] = moments(share_of(rank, "uneven"))
    found["moments/same rows"] = moments(slice(0, ROWS))
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
@pytest.mark.parametrize(("name", "share"), CASES)
def test_two_processes_have_the_gradients_of_one(
    name: str, share: str, both: list[dict[str, dict[str, Tensor]]]
) -> None:
    expected = gradients(name, slice(0, ROWS))
    assert any(float(g.abs().max()) > 1e-4 for g in expected.values())
    for found in both:
        assert found[f"{name}/{share}"].keys() == expected.keys()
        for parameter, grad in expected.items():
            torch.testing.assert_close(found[f"{name}/{share}"][parameter], grad, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_without_a_gather_the_gradient_is_another(both: list[dict[str, dict[str, Tensor]]]) -> None:
    assert float((both[0]["naive"]["w"] - naive(slice(0, ROWS))).abs().max()) > 1e-3


@pytest.mark.slow
def test_the_correlations_of_unequal_shares_are_those_of_all_rows(both: list[dict[str, dict[str, Tensor]]]) -> None:
    for found in both:
        torch.testing.assert_close(found["correlation"]["w"], correlation(slice(0, ROWS)), atol=1e-9, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["shared", "same rows"])
def test_moments_merge_over_ranks(case: str, both: list[dict[str, dict[str, Tensor]]]) -> None:
    expected = moments(slice(0, ROWS))
    for found in both:
        for key, value in expected.items():
            torch.testing.assert_close(found[f"moments/{case}"][key], value, atol=1e-10, rtol=1e-10)


if __name__ == "__main__":
    worker(int(sys.argv[1]), Path(sys.argv[2]))
