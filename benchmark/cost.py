"""What a cell costs: parameters, peak memory, floating-point operations and latency."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from datamodules.base import Batches
from methods.base import Method
from methods.stage import Stage


def reset_peak(device: torch.device) -> float:
    """Forget the peak of what ran in this process before; what it holds now, in MB: interpreter, libraries, data."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device) / 2**20
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc
        # What earlier cells left free goes back, or a later one would seem to need nothing.
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # Linux
        Path("/proc/self/clear_refs").write_text("5")
    return peak(device)


def peak(device: torch.device) -> float:
    """In MB, since `reset_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def trainable(stages: Iterable[Stage]) -> int:
    """Parameters that some of a method's stages fits by gradient."""
    parts = [part for s in stages if s.solve is None for part in s.learn or (s.method,)]
    fitted = {id(p): p for part in parts for p in ([part] if isinstance(part, torch.Tensor) else part.parameters())}
    return sum(p.numel() for p in fitted.values() if p.requires_grad)


def latency(method: Method, rows: Batches, device: torch.device) -> dict[str, float]:
    """Of a clean forward pass: FLOPs per row; milliseconds at batch 1 and 64, median and 95th percentile of 20."""
    found: dict[str, float] = {}
    with torch.inference_mode():
        for size in (1, 64):
            batch = rows.take(slice(0, min(size, rows.rows)))
            inputs = {name: x.to(device) for name, x in batch.inputs.items()}
            present = batch.present.to(device)
            if size == 1:
                found["flops"] = _flops(method, inputs, present)
            times = torch.tensor([_timed(method, inputs, present, device) for _ in range(22)][2:])
            found[f"latency_b{size}_p50_ms"] = float(times.median())
            found[f"latency_b{size}_p95_ms"] = float(times.quantile(0.95))
    return found


def _flops(method: Method, inputs: dict[str, torch.Tensor], present: torch.Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        method(inputs, present)
    return float(counter.get_total_flops())


def _timed(method: Method, inputs: dict[str, torch.Tensor], present: torch.Tensor, device: torch.device) -> float:
    started = time.perf_counter()
    method(inputs, present)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - started)
