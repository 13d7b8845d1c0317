"""Number formats of training: which are known, and whether this machine survives them.

Half-precision products kill the process on some CPUs without a Python error, so a format is tried in a child process
before a cell may use it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache
from typing import Literal

Precision = Literal["32-true", "64-true", "bf16-mixed", "16-mixed"]
_TIMEOUT = 600  # seconds; a loaded machine takes a minute to import torch


def check_precision(precision: str, device: str) -> None:
    """Try a precision on a kind of device ("cpu", "cuda", "mps"), once per process.

    Raises:
        UsageError: Naming both and what went wrong.
    """
    problem = _problem(precision, device)
    if problem is not None:
        from benchmark.errors import UsageError  # here: the child process runs this file and has nothing of ours

        raise UsageError(f"precision {precision!r} does not work on {device}: {problem}")


@cache
def _problem(precision: str, device: str) -> str | None:
    if precision == "32-true":
        return None
    if precision == "64-true":
        return "it has no float64" if device == "mps" else None
    if precision == "16-mixed" and device == "cpu":
        # Lightning would quietly take bf16 instead.
        return "CPUs train in bf16-mixed, not in float16"
    return _try(precision, device)


def _try(precision: str, device: str) -> str | None:
    """What happens to a child process that takes a training step in this precision; None if nothing does."""
    command = [sys.executable, "-P", __file__, precision, device]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return f"a step took more than {_TIMEOUT} s"
    if child.returncode < 0:
        return f"a step ended the process with {signal.Signals(-child.returncode).name}"
    if child.returncode > 0:
        return (child.stderr.strip().splitlines() or ["a step failed"])[-1]
    return None


def _step(precision: str, device: str) -> None:
    """One training step of a convolution and two linear layers."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    dtype = torch.bfloat16 if precision.startswith("bf16") else torch.float16
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    model.to(device)
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    with torch.autocast(device, dtype):
        y = model(torch.randn(32, 3, 8, 8, device=device))
        attended = nn.functional.scaled_dot_product_attention(y[None], y[None], y[None])
    if attended.dtype != dtype:
        raise RuntimeError(f"products came in {attended.dtype}, not {dtype}")
    (y.float().square().mean() + attended.float().mean()).backward()
    optimiser.step()
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        raise FloatingPointError("a step gave numbers that are not finite")


if __name__ == "__main__":
    _step(*sys.argv[1:])
