"""The contract as checks: what a method, a dataset and a corruption owe to everybody else.

`polymodal check` and our own tests run it.
"""

from benchmark.conformance.corruptions import check_corruption
from benchmark.conformance.datasets import check_dataset
from benchmark.conformance.methods import check_method
from benchmark.conformance.report import Result

__all__ = ["Result", "check_corruption", "check_dataset", "check_method"]
