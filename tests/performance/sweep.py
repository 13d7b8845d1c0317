"""A 61-condition sweep against 61 clean forward passes of two equal encoders, paired in one run."""

import sys

import torch

from benchmark.conditions import resolve
from benchmark.evaluate import Filling, sweep
from benchmark.fills import mean_encodings
from benchmark.trainer import Encodings
from methods import Recipe, methods
from tests.performance.paired import ratio, verdict
from tests.performance.training import Images

BOUND, CONDITIONS, ROWS, PASSES = 0.43, 61, 1024, 10


def main() -> int:
    torch.set_num_threads(1)
    datamodule = Images()
    rows = datamodule.splits["train"]
    few = {name: x[:ROWS] for name, x in rows.inputs.items()}
    datamodule.splits["test"] = rows._replace(inputs=few, target=rows.target[:ROWS])
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

    def clean() -> None:
        with torch.inference_mode():
            for _ in range(PASSES):
                for batch in datamodule.ordered("test"):
                    method(batch.inputs, batch.present).logits.argmax(dim=1)

    # Both fills of absent encodings. What finds and chooses them, a pass over the training rows, is a part of fitting.
    filling = Filling(mean_encodings(Encodings(method, datamodule.ordered("train"))), "zero")
    found, _ = ratio(lambda: sweep(method, datamodule, conditions, filling=filling), clean, rounds=5)
    found *= PASSES / CONDITIONS
    held = found <= BOUND
    print(f"sweep of {CONDITIONS} conditions: {found:.3f} of as many clean passes (bound {BOUND}) {verdict(held)}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
