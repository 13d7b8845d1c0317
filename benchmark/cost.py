"""Peak memory of a stretch of work: of the GPU, or of the process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch


def reset_peak(device: torch.device) -> None:
    """Forget the peak of what ran in this process before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # Linux
            Path("/proc/self/clear_refs").write_text("5")


def peak(device: torch.device) -> float:
    """In MB, since `reset_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
