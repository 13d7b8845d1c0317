"""information: the terms against loops from the bounds, what each of them moves, and what it does to planted codes."""

import math

import pytest
import torch
import torch.nn.functional as F

from datamodules.spec import Batch, Modality, Task
from methods.functional.information import club_bound, infonce_bound
from methods.information import Information
from methods.stage import Recipe

TASK = Task("t", "1", (Modality("a", "vector", (6,)), Modality("b", "vector", (6,))), "multiclass", 3)


def made(rows: int = 12) -> tuple[Information, Batch]:
    torch.manual_seed(0)
    method = Information(TASK, Recipe(width=8), weight=0.5, components=4)
    inputs = {"a": torch.randn(rows, 6), "b": torch.randn(rows, 6)}
    batch = Batch(inputs, torch.arange(rows) % 3, torch.ones(rows, 2, dtype=torch.bool), torch.arange(rows))
    return method, batch


def test_the_terms_are_the_bounds_written_as_loops() -> None:
    method, batch = made()
    batch.present[0, 1] = batch.present[1, 0] = False
    out = method(batch.inputs, batch.present)
    terms = method.auxiliary(out, batch)
    shared, own = method.codes(out.z)
    both = [r for r in range(12) if r > 1]
    expected = {"shared": 0.0, "apart": 0.0, "critic": 0.0, "own": 0.0}
    for i, j in ((0, 1), (1, 0)):
        weight = method.critics[f"{i}_{j}"]
        f = {(r, q): float(own[r, i] @ weight @ out.z[q, j]) for r in both for q in both}
        g = {(r, q): float(F.cosine_similarity(shared[r, i], shared[q, j], dim=0)) / 0.1 for r in both for q in both}
        for name, score in (("shared", g), ("critic", f)):
            rows = [score[r, r] - math.log(sum(math.exp(score[r, q]) for q in both) / len(both)) for r in both]
            expected[name] -= sum(rows) / len(both)
        off = [f[r, q] for r in both for q in both if r != q]
        expected["apart"] += sum(f[r, r] for r in both) / len(both) - sum(off) / len(off)
    for i in (0, 1):
        there = batch.present[:, i]
        expected["own"] -= float(infonce_bound(own[there, i] @ method.critics[f"{i}_{i}"] @ out.z[there, i].T))
    for name, value in terms.items():
        assert float(value) == pytest.approx(0.5 * expected[name] / 2, rel=1e-4, abs=1e-6), name


def test_what_keeps_codes_apart_moves_no_critic_and_a_critic_no_code() -> None:
    method, batch = made()
    for term, moved, still in (("apart", method.to_own, method.critics), ("critic", method.critics, method.to_own)):
        method.zero_grad()
        method.auxiliary(method(batch.inputs, batch.present), batch)[term].backward()
        assert any(p.grad is not None and p.grad.abs().max() > 0 for p in moved.parameters())
        assert all(p.grad is None or p.grad.abs().max() == 0 for p in still.parameters())


def test_one_row_and_rows_without_a_pair_have_no_bound() -> None:
    method, batch = made(1)
    assert all(float(v) == 0 for v in method.auxiliary(method(batch.inputs, batch.present), batch).values())


def test_codes_divide_what_is_common_and_what_is_not() -> None:
    """Both modalities see c, each its own noise: shared codes learn c, own codes are kept from it."""
    torch.manual_seed(1)
    c, p = torch.randn(512, 3), torch.randn(2, 512, 3)
    z = torch.stack([F.pad(torch.cat([c, p[m]], dim=1), (0, 2)) for m in (0, 1)], dim=1)
    method = Information(TASK, Recipe(width=8), weight=1.0, components=3)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.02)
    present = torch.ones(512, 2, dtype=torch.bool)
    batch = Batch({}, torch.zeros(512).long(), present, torch.arange(512))

    def told(code: torch.Tensor) -> float:
        """Share of the code's variance that c explains."""
        code = code - code.mean(dim=0)
        fit = c @ torch.linalg.lstsq(c, code).solution
        return float(fit.square().sum() / code.square().sum())

    for _ in range(150):
        optimizer.zero_grad()
        out = type("Out", (), {"z": z})
        sum(method.auxiliary(out, batch).values()).backward()  # pyright: ignore
        optimizer.step()
    shared, own = (codes.detach() for codes in method.codes(z))
    assert told(shared[:, 0]) > 0.9
    assert told(own[:, 0]) < 0.3
    f = shared[:, 0] @ shared[:, 1].T
    assert float(club_bound(f)) > 0
