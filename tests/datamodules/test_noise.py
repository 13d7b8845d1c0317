"""Counter-based noise: the generator, its distributions, and that nothing but (key, row, position) decides a draw."""

import hashlib
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from datamodules.corruptions import noise

GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
DRAWS: dict[str, Callable[[int, Tensor, tuple[int, ...]], Tensor]] = {
    "uniforms": noise.uniforms,
    "normals": noise.normals,
    "integers": lambda key, row, shape: noise.integers(key, row, shape, high=1000),
}


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_splitmix64_gives_the_published_sequence() -> None:
    state, outputs = 1234567, []
    for _ in range(5):
        outputs.append(noise.splitmix64(state))
        state = (state + GOLDEN) & WORD
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(key=st.integers(0, WORD), row=st.integers(0, 2**40), stream=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_words_are_splitmix64_of_key_row_and_counter(key: int, row: int, stream: int) -> None:
    drawn = noise.words(key, torch.tensor([row]), 3, stream)[0].tolist()
    state = noise.splitmix64(noise.splitmix64(row) ^ noise.splitmix64((key + stream * GOLDEN) & WORD))
    expected = [noise.splitmix64((state + i * GOLDEN) & WORD) for i in range(3)]
    assert [word & WORD for word in drawn] == expected


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("shape", [(), (1,), (5, 7), (3, 32, 33)])
def test_a_row_is_bit_equal_at_any_batch_size_order_and_thread_count(
    name: str, shape: tuple[int, ...], threads: int
) -> None:
    draw, rows = DRAWS[name], torch.arange(70)
    whole = draw(11, rows, shape)
    assert whole.shape == (70, *shape)
    for size in (1, 3, 64):
        assert torch.equal(torch.cat([draw(11, part, shape) for part in rows.split(size)]), whole)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw(11, rows[order], shape), whole[order])


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_depends_on_key_and_row_and_on_no_global_state(name: str) -> None:
    draw, rows = DRAWS[name], torch.arange(8)
    torch.manual_seed(0)
    state, first = torch.get_rng_state(), draw(1, rows, (50,))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(draw(1, rows, (50,)), first)
    assert not torch.equal(draw(2, rows, (50,)), first)
    assert not torch.equal(draw(1 | 1 << 63, rows, (50,)), first)
    assert len(first.unique(dim=0)) == 8


def test_a_longer_draw_begins_with_the_shorter() -> None:
    rows = torch.arange(4)
    assert torch.equal(noise.normals(3, rows, (101,))[:, :10], noise.normals(3, rows, (10,)))
    assert torch.equal(noise.uniforms(3, rows, (101,))[:, :11], noise.uniforms(3, rows, (11,)))


def test_streams_of_a_row_are_independent() -> None:
    rows = torch.arange(100)
    a, b = (noise.normals(3, rows, (1000,), stream=s).flatten() for s in (0, 1))
    assert abs(torch.corrcoef(torch.stack((a, b)))[0, 1].item()) < 4 / math.sqrt(100_000)


def test_normals_are_normal() -> None:
    z = noise.normals(5, torch.arange(500), (1000,)).double()
    assert abs(z.mean().item()) < 4e-3
    assert abs(z.var().item() - 1) < 6e-3
    assert stats.kstest(z.flatten()[::5].numpy(), "norm").pvalue > 1e-3
    assert 4 < z.abs().max().item() < 4.4
    # Neither along a row nor across rows.
    assert abs((z[:, 1:] * z[:, :-1]).mean().item()) < 4e-3
    assert abs((z[1:] * z[:-1]).mean().item()) < 4e-3


def test_uniforms_and_integers_are_uniform() -> None:
    u = noise.uniforms(5, torch.arange(1000), (200,))
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3
    counts = noise.integers(5, torch.arange(1000), (200,), high=7).flatten().bincount()
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_the_stream_is_pinned() -> None:
    """A change of these bits changes every corrupted input: bump the version of the severity table with it."""
    rows = torch.arange(5)
    drawn = (noise.uniforms(1, rows, (9,)), noise.normals(1, rows, (9,)))
    digest = hashlib.sha256(b"".join(d.numpy().tobytes() for d in drawn)).hexdigest()
    assert digest[:16] == "528468efc4c2e766"
