"""Intensity of a sentiment, with the scores that MOSI and MOSEI are reported by."""

import torch
from torch import Tensor

from datamodules.targets import register_target
from datamodules.targets.regression import Regression


@register_target("sentiment")
class Sentiment(Regression):
    """A value from -3 to 3: `[N, 1]`.

    Scores are those of the literature (Tsai et al. 2019, Yu et al. 2021). Two conventions of a neutral sentence live
    side by side: `accuracy_2` tells negative from the rest, `accuracy_2_nonzero` leaves neutral sentences out and
    tells negative from positive; F1 is the mean of both classes' F1 weighted by their rows, under both conventions.
    `accuracy_7` and `accuracy_5` compare rounded values, cut at 3 and at 2.
    """

    metrics = (
        "mae", "correlation", "accuracy_2", "accuracy_2_nonzero", "accuracy_5", "accuracy_7", "weighted_f1",
        "weighted_f1_nonzero",
    )  # fmt: skip

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        kept, target = (x.double().reshape(-1) for x in (kept, target))
        found = super().scores(kept, target)
        found |= {f"accuracy_{2 * k + 1}": _share(_rounded(kept, k) == _rounded(target, k)) for k in (2, 3)}
        clear = target != 0
        kinds = {"": (kept >= 0, target >= 0), "_nonzero": (kept[clear] > 0, target[clear] > 0)}
        for suffix, (guess, truth) in kinds.items():
            found[f"accuracy_2{suffix}"] = _share(guess == truth)
            found[f"weighted_f1{suffix}"] = _weighted_f1(guess, truth)
        return found

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        # The constant with the least absolute error is the median.
        return self.always(train.float().median(dim=0).values, test)

    def fault(self, target: Tensor) -> str:
        return super().fault(target) or ("" if target.abs().max() <= 3 else "intensities must be -3 to 3")


def _rounded(x: Tensor, limit: int) -> Tensor:
    return x.clamp(-limit, limit).round()


def _share(right: Tensor) -> float:
    return float(right.double().mean()) if len(right) else 0.0


def _weighted_f1(guess: Tensor, truth: Tensor) -> float:
    total = torch.zeros(())
    for side in (False, True):
        hits, either = ((guess == side) & (truth == side)).sum(), (guess == side).sum() + (truth == side).sum()
        total = total + (truth == side).sum() * 2 * hits / either.clamp(min=1)
    return float(total / max(len(truth), 1))
