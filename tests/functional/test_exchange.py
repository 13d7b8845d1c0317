"""Channel exchange: the identities of `swap`, which trains, and of the public `exchange_channels` around it."""

from itertools import product

import pytest
import torch

from methods.functional.exchange import channel_groups, exchange_channels, exchange_penalty, exchanged, swap


def maps(m: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 6, 3, 3, dtype=torch.float64) for _ in range(m)]


def test_threshold_zero_is_identity_and_infinity_swaps() -> None:
    zs, gammas = maps(2), torch.rand(2, 6)
    assert all(torch.equal(a, b) for a, b in zip(exchange_channels(zs, gammas, 0.0), zs, strict=True))
    swapped = exchange_channels(zs, gammas, float("inf"))
    assert torch.allclose(swapped[0], zs[1]) and torch.allclose(swapped[1], zs[0])


def test_equals_a_loop_over_channels() -> None:
    zs, gammas = maps(3), torch.rand(3, 6) - 0.5
    out = exchange_channels(zs, gammas, 0.2)
    for m in range(3):
        for c in range(6):
            own = abs(gammas[m, c]) >= 0.2
            expected = zs[m][:, c] if own else sum(zs[j][:, c] for j in range(3) if j != m) / 2
            assert torch.allclose(out[m][:, c], expected)


def test_equal_inputs_stay_and_permutations_permute() -> None:
    same = [maps(1)[0]] * 3
    assert all(torch.allclose(o, same[0]) for o in exchange_channels(same, torch.zeros(3, 6), 1.0))
    zs, gammas, order = maps(3), torch.rand(3, 6), [2, 0, 1]
    direct = exchange_channels(zs, gammas, 0.5)
    permuted = exchange_channels([zs[i] for i in order], gammas[order], 0.5)
    assert all(torch.allclose(permuted[k], direct[i]) for k, i in enumerate(order))


def test_exchanged_channels_get_no_task_gradient() -> None:
    gamma = torch.tensor([[0.5, 0.01, 0.5], [0.01, 0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    raw = [torch.randn(2, 3, 2, 2, dtype=torch.float64) for _ in range(2)]
    zs = [g[None, :, None, None] * x for g, x in zip(gamma, raw, strict=True)]
    own = exchange_channels(zs, gamma, 0.1)[0]
    own.square().sum().backward()
    assert gamma.grad is not None
    assert gamma.grad[0, 1] == 0 and gamma.grad[0, 0] != 0 and gamma.grad[1, 1] != 0
    assert exchanged(gamma, 0.1).tolist() == [[False, True, False], [True, False, False]]


def test_swap_takes_only_from_those_present() -> None:
    x = torch.randn(3, 8, 2, 1, 1)
    there = torch.tensor(list(product([True, False], repeat=3))).T
    out = swap(x, torch.tensor([[True, False]] * 3), there)
    assert torch.equal(out[:, :, 1], x[:, :, 1])
    for m, b in product(range(3), range(8)):
        others = [x[j, b, 0] for j in range(3) if j != m and there[j, b]]
        expected = torch.stack(others).mean(dim=0) if others else x[m, b, 0]
        assert torch.allclose(out[m, b, 0], expected, atol=1e-6)


def test_penalty_groups_are_disjoint_and_cover_all_channels() -> None:
    for modalities, channels in ((2, 6), (3, 7), (4, 10)):
        hits = torch.zeros(modalities, channels)
        for m in range(modalities):
            for c in range(channels):
                unit = torch.zeros(modalities, channels)
                unit[m, c] = -1.0
                hits[m, c] = exchange_penalty(unit)
        assert torch.equal(hits.sum(dim=0), torch.ones(channels))
        assert torch.equal(hits.bool(), channel_groups(modalities, channels))


def test_one_modality_has_nobody_to_exchange_with() -> None:
    with pytest.raises(ValueError, match="at least two modalities"):
        exchange_channels(maps(1), torch.zeros(1, 6), 1.0)
