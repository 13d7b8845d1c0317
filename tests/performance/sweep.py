"""A 61-condition sweep against 61 clean forward passes, paired in one run: at most half (two equal encoders)."""

import statistics
import sys
import time

import torch

from benchmark.conditions import resolve
from benchmark.evaluate import sweep
from methods import Recipe, methods
from tests.performance.training import Images

BOUND, CONDITIONS = 0.5, 61


def main() -> int:
    torch.set_num_threads(1)
    datamodule = Images()
    datamodule.splits["test"] = datamodule.splits["train"]
    method = methods.get("concat")(datamodule.task, Recipe()).train(False)
    every = resolve("full", datamodule.task)  # all kinds of conditions; as many single ones as make 61
    others = [c for c in every if c.kind != "single"]
    singles = [c for c in every if c.kind == "single"]
    names = list(dict.fromkeys(c.corruption for c in singles))
    singles.sort(
        key=lambda c: names.index(c.corruption)
    )  # both modalities under the same corruptions, as in a real sweep
    conditions = (*others, *singles[: CONDITIONS - len(others)])
    assert len(conditions) == CONDITIONS
    ratios = []
    for i in range(4):
        started = time.process_time()
        sweep(method, datamodule, conditions)
        swept = time.process_time()
        with torch.inference_mode():
            for _ in range(CONDITIONS):
                for batch in datamodule.ordered("test"):
                    method(batch.inputs, batch.present).logits.argmax(dim=1)
        ended = time.process_time()
        if i:
            ratios.append((swept - started) / (ended - swept))
    ratio = statistics.median(ratios)
    verdict = "ok" if ratio <= BOUND else "MISSED"
    print(f"sweep of {CONDITIONS} conditions: {ratio:.2f} of as many clean passes (bound {BOUND}) {verdict}")
    return 0 if ratio <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
