"""One torch thread per test process; under CI a skip fails, unless it needs a GPU."""

import os
from collections.abc import Generator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
# Timing never decides a test, and a run that failed can be repeated.
settings.register_profile("polymodal", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("polymodal")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
    report = yield
    if os.environ.get("POLYMODAL_CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "GPU" not in reason:
            report.outcome = "failed"
            report.longrepr = f"skipped under CI: {reason}"
    return report
