"""Tensor fusion by split-GEMM against the materialised outer product: time and memory, forward + backward.

Run with `python tests/performance/tensor_fusion.py` (or `make performance`). Both variants run interleaved in one
process on one thread, in process CPU time; the bounds are on the median of the paired ratios.

Each size has a process of its own, as in a training run. Much of what the outer product costs is fresh memory, and a
heap that larger blocks have grown before hides that: measured after 32x32x32 in one process, 128x128 gains about 1.5x
instead of 2x. The ratio of the fastest rounds is printed for information.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

if __name__ == "__main__":  # run as a script, the project's root is not on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from methods.functional.fusion import tensor_fusion, with_one

BATCH, OUTPUTS, ROUNDS, WARM_UP = 128, 64, 61, 3
Fusion = Callable[[Sequence[Tensor], Tensor], Tensor]


class Bound(NamedTuple):
    """What one size must reach: the speed-up of the split, and its share of the other's activation memory."""

    dims: tuple[int, ...]
    speedup: float
    memory: float | None

    @property
    def name(self) -> str:
        """As it is given on the command line."""
        return "x".join(map(str, self.dims))


BOUNDS = (Bound((32, 32, 32), 2.5, 0.25), Bound((128, 128), 1.6, None))


def materialised(xs: Sequence[Tensor], weight: Tensor) -> Tensor:
    """The usual implementation: the whole outer product, then one linear map."""
    outer = with_one(xs[0])
    for x in xs[1:]:
        outer = (outer.unsqueeze(2) * with_one(x).unsqueeze(1)).flatten(1)
    return outer @ weight.reshape(outer.shape[1], -1)


def seconds(fuse: Fusion, xs: Sequence[Tensor], weight: Tensor) -> float:
    """CPU time of one forward and backward pass: on a shared machine wall time measures the neighbours."""
    for tensor in (*xs, weight):
        tensor.grad = None
    start = time.process_time()
    fuse(xs, weight).square().mean().backward()
    return time.process_time() - start


def activation_bytes(fuse: Fusion, xs: Sequence[Tensor], weight: Tensor) -> int:
    """Bytes kept from the forward pass for the backward pass, each storage once, inputs and weight left out."""
    given = {tensor.untyped_storage().data_ptr() for tensor in (*xs, weight)}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = fuse(xs, weight).square().mean()  # the graph stays alive, so no address is used twice
    total = sum(kept.values())
    del loss
    return total


def measure(bound: Bound) -> bool:
    """Print the paired ratios of one size and say whether its bound holds."""
    torch.manual_seed(0)
    xs = [torch.randn(BATCH, d, requires_grad=True) for d in bound.dims]
    shape = [d + 1 for d in bound.dims] + [OUTPUTS]
    weight = torch.randn(shape).div(torch.tensor(shape[:-1]).prod().sqrt()).requires_grad_()
    for _ in range(WARM_UP):
        seconds(materialised, xs, weight), seconds(tensor_fusion, xs, weight)
    rounds = [(seconds(materialised, xs, weight), seconds(tensor_fusion, xs, weight)) for _ in range(ROUNDS)]
    slow, fast = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b in rounds)
    share = activation_bytes(tensor_fusion, xs, weight) / activation_bytes(materialised, xs, weight)
    good = ratio >= bound.speedup and (bound.memory is None or share < bound.memory)
    fastest = min(a for a, _ in rounds) / min(b for _, b in rounds)
    memory = "no bound" if bound.memory is None else f"bound {bound.memory:g}"
    print(
        f"{bound.name} -> {OUTPUTS}: materialised {slow:.1f} ms, split-GEMM {fast:.1f} ms, {ratio:.2f}x faster "
        f"(bound {bound.speedup:g}x; fastest rounds {fastest:.2f}x); activation memory {share:.3f} of it ({memory}): "
        f"{'ok' if good else 'MISSED'}"
    )
    return good


def main(sizes: Sequence[str] = ()) -> int:
    """Measure the given size here, or every size in its own process; the exit code is 1 when a bound is missed."""
    torch.set_num_threads(1)
    if sizes:
        held = [measure(bound) for bound in BOUNDS if bound.name in sizes]
    else:
        runs = [subprocess.run([sys.executable, __file__, bound.name], check=False) for bound in BOUNDS]
        held = [run.returncode == 0 for run in runs]
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
