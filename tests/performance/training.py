"""A cell's training against the same bare PyTorch loop, paired in one run: the price of the framework.

Bounds of design.md, section 7: a wide-MLP cell at most 1.35 times the loop, a conv cell at most 1.15 times.
"""

import statistics
import sys
import time

import torch
from torch.nn.functional import cross_entropy

from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules import datasets
from datamodules.base import DataModule, Split
from datamodules.spec import Modality, Task
from methods import Method, Recipe, methods

ROUNDS = 5


class Images(DataModule):
    """Random 28x28 images: a conv cell of 10 ms a step or more."""

    def describe(self) -> Task:
        views = (Modality("left", "image", (1, 28, 28)), Modality("right", "image", (1, 28, 28)))
        return Task("performance_images", "1", views, "multiclass", 10)

    def load(self) -> dict:
        generator = torch.Generator().manual_seed(0)
        return {
            name: Split(
                {k: torch.rand(n, 1, 28, 28, generator=generator) for k in ("left", "right")},
                torch.randint(0, 10, (n,), generator=generator),
            )
            for name, n in (("train", 2560), ("val", 256), ("test", 256))
        }


def bare_loop(method: Method, datamodule: DataModule, recipe: Recipe) -> None:
    """The loop one would write by hand: index batches, forward, loss, fused AdamW, validation per epoch."""
    split, validation = datamodule.splits["train"], datamodule.splits["val"]
    optimizer = torch.optim.AdamW(method.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    rows = len(split.target)
    for _ in range(recipe.epochs):
        method.train()
        order = torch.randperm(rows)
        for start in range(0, rows - recipe.batch_size + 1, recipe.batch_size):
            index = order[start : start + recipe.batch_size]
            out = method({k: x[index] for k, x in split.inputs.items()})
            loss = cross_entropy(out.logits, split.target[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        method.eval()
        with torch.no_grad():
            guess = [
                method({k: x[i : i + 256] for k, x in validation.inputs.items()}).logits.argmax(dim=1)
                for i in range(0, len(validation.target), 256)
            ]
            (torch.cat(guess) == validation.target).float().mean()


def measure(name: str, datamodule: DataModule, recipe: Recipe, bound: float) -> bool:
    """Median ratio over interleaved rounds."""
    datamodule.batch_size = recipe.batch_size
    ratios, steps = [], recipe.epochs * (len(datamodule.splits["train"].target) // recipe.batch_size)
    for i in range(ROUNDS + 1):
        seconds = []
        for train in (lambda m: bare_loop(m, datamodule, recipe), lambda m: fit(m, datamodule)):
            seed_all("performance", i)
            method = methods.get("concat")(datamodule.task, recipe)
            started = time.process_time()
            train(method)
            seconds.append(time.process_time() - started)
        if i:  # the first round warms up
            ratios.append(seconds[1] / seconds[0])
            step = 1e3 * seconds[0] / steps
    ratio = statistics.median(ratios)
    verdict = "ok" if ratio <= bound else "MISSED"
    print(f"{name}: {ratio:.2f}x the bare loop ({step:.1f} ms a step; bound {bound}) {verdict}")
    return ratio <= bound


def main() -> int:
    torch.set_num_threads(1)
    wide = datasets.get("interactions_xor")(rows=12_000)
    results = [
        measure("wide-MLP cell", wide, Recipe(width=256, epochs=3, batch_size=128, patience=99), 1.35),
        measure("conv cell", Images(), Recipe(width=64, epochs=2, batch_size=128, patience=99), 1.15),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
