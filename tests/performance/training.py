"""A cell's training against the same bare PyTorch loop, paired in one run: the price of the framework."""

import sys

import torch
from torch.nn.functional import cross_entropy

from benchmark.seeds import seed_all
from benchmark.trainer import fit
from datamodules import datasets
from datamodules.base import DataModule, Split
from datamodules.spec import Modality, Task
from methods import Method, Recipe, methods
from tests.performance.paired import ratio, verdict

ROUNDS = 7


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
    """One cell's training against the loop's, the same model and batches in both."""
    datamodule.batch_size = recipe.batch_size

    def fresh() -> Method:
        seed_all("performance")
        return methods.get("concat")(datamodule.task, recipe)

    found, seconds = ratio(
        lambda: fit(fresh(), datamodule), lambda: bare_loop(fresh(), datamodule, recipe), rounds=ROUNDS
    )
    step = 1e3 * seconds / (recipe.epochs * (len(datamodule.splits["train"].target) // recipe.batch_size))
    held = found <= bound
    print(f"{name}: {found:.2f}x the bare loop ({step:.1f} ms a step; bound {bound}) {verdict(held)}", flush=True)
    return held


def main() -> int:
    torch.set_num_threads(1)
    vectors = datasets.get("interactions_xor")(rows=12_000)
    results = [
        measure(f"MLP cell of width {width}", vectors, Recipe(width=width, epochs=epochs, patience=99), 1.12)
        for width, epochs in ((32, 15), (64, 15), (256, 6))
    ]
    results.append(measure("conv cell", Images(), Recipe(width=64, epochs=2, patience=99), 1.05))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
