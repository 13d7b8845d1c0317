"""What a corruption owes to everybody else."""

from __future__ import annotations

from benchmark.conformance.report import Result
from datamodules.corruptions import contract


def check_corruption(name: str) -> list[Result]:
    """Every check of the corruption on every kind it is for."""
    broken = [Result("corruption", name, False, violation) for violation in contract.check(name)]
    return broken or [Result("corruption", name, True)]
