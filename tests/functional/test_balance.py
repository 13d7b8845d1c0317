"""Balance: the public vectors, loops written from the equations, gradients."""

import math
from typing import Literal, get_args

import pytest
import torch

from methods.functional import balance
from tests.functional.modern_vectors import close, draw, vector

By = Literal["row", "column"]


@pytest.mark.parametrize("name", ["gradient_modulation_0", "gradient_modulation_1"])
def test_modulation_vector(name: str) -> None:
    given, params, wanted = vector(name)
    close(balance.modulation(given["loss"], given["present"], params["alpha"]), wanted["k"])


def test_modulation_equals_a_loop() -> None:
    loss = draw(5, 4).abs() * torch.tensor([0.1, 1.0, 1.0, 1.0], dtype=torch.float64)
    present = torch.rand(5, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    present[:, 3] = False  # nobody has it
    loss[~present] = torch.nan
    score = {m: sum(math.exp(-loss[i, m]) for i in range(5) if present[i, m]) / int(present[:, m].sum())
             for m in range(3)}  # fmt: skip
    wanted = []
    for m in range(4):
        rho = score[m] / (sum(score[j] for j in range(3) if j != m) / 2) if m < 3 else 0.0
        wanted.append(1 - math.tanh(0.3 * rho) if rho > 1 else 1.0)
    k = balance.modulation(loss, present, 0.3)
    assert k.tolist() == pytest.approx(wanted)
    assert (k < 1).any() and k[3] == 1


def test_nothing_to_compare_with_keeps_the_pace() -> None:
    loss, present = torch.zeros(3, 2), torch.tensor([[True, False]] * 3)
    assert balance.modulation(loss, present, 0.3).tolist() == [1.0, 1.0]
    assert balance.modulation(draw(3, 2).abs(), torch.ones(3, 2, dtype=torch.bool), 0.0).tolist() == [1.0, 1.0]


def test_blending_vector() -> None:
    given, params, wanted = vector("gradient_blending_0")
    weights = balance.blending_weights(
        given["train_before"], given["held_before"], given["train_after"], given["held_after"], params["floor"]
    )
    close(weights, wanted["weights"])


def test_blending_equals_a_loop() -> None:
    before, held, after, end = (draw(4, seed=i).abs() + 1 for i in range(4))
    raw = []
    for k in range(4):
        overfitting = (end[k] - after[k]) - (held[k] - before[k])
        raw.append(max(0.0, (held[k] - end[k]).item()) / max(0.01, overfitting.item()) ** 2)
    assert sum(raw) > 0
    wanted = [r / sum(raw) for r in raw]
    assert balance.blending_weights(before, held, after, end).tolist() == pytest.approx(wanted)


def test_no_head_generalised() -> None:
    one = torch.ones(4)
    assert balance.blending_weights(one, one, one * 0.5, one * 2).tolist() == [0.25] * 4


def test_distillation_vector() -> None:
    given, _, wanted = vector("distilled_missing_0")
    for by in get_args(By):
        got = balance.margin_distillation(given["student"], given["teacher"], given["teacher_logits"], by)
        close(got, wanted[by])


@pytest.mark.parametrize("by", get_args(By))
def test_distillation_equals_a_loop(by: By) -> None:
    student, teacher, logits = draw(4, 6), draw(4, 3, seed=1), draw(4, 5, seed=2)
    p = logits.softmax(dim=1)
    h = [-sum(x * math.log(x) for x in row) for row in p.tolist()]
    total = 0.0
    for i in range(4):
        for j in range(4):
            a, b = ((f[i] @ f[j]) / sum((f[i] @ f[k]) ** 2 for k in range(4)) ** 0.5 for f in (student, teacher))
            total += h[i if by == "row" else j] / sum(h) * float(a - b) ** 2
    assert balance.margin_distillation(student, teacher, logits, by).item() == pytest.approx(total)


def test_certain_teachers_and_regression_weigh_rows_equally() -> None:
    student, teacher = draw(4, 6), draw(4, 6, seed=1)
    certain = torch.full((4, 3), -1e6, dtype=torch.float64)
    certain[:, 0] = 1e6
    close(balance.margin_distillation(student, teacher, certain), balance.margin_distillation(student, teacher, None))


def test_a_perfect_student_pays_nothing() -> None:
    teacher = draw(4, 6)
    assert balance.margin_distillation(3 * teacher, teacher, draw(4, 5)).item() == pytest.approx(0, abs=1e-12)


def test_gradients() -> None:
    student, teacher, logits = draw(4, 3).requires_grad_(), draw(4, 3, seed=1), draw(4, 5, seed=2)
    for by in get_args(By):
        assert torch.autograd.gradcheck(lambda x, b=by: balance.margin_distillation(x, teacher, logits, b), (student,))
    loss, present = draw(4, 3).abs().requires_grad_(), torch.ones(4, 3, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda x: balance.modulation(x, present, 0.3), (loss,))
