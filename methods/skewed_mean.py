"""Centre regularisation and metric learning on the joint embedding of any fusion method."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor, nn

from datamodules.options import Natural, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Base, Encoded, Method, Output, Recipe, Stage, Wrapper, register
from methods.functional.centers import center_statistics
from methods.parts.center_regularizers import Regularizer
from methods.parts.class_centers import PAIRS, CosineClassifier, Loss, cosine_logits, metric_loss
from methods.parts.search import LogUniform, Space
from methods.parts.unseen_classes import first_rows, protocol

R1 = Regularizer("r1")


@register("skewed_mean")
class SkewedMean(Wrapper):
    """Cosine head on the joint embedding of any fusion, whose class weights are centres that a regulariser spreads.

    With C classes in an embedding of width e the base loss alone separates the centres when C <= e + 1: look for
    effects where C is larger.

    `loss` is the task's cross-entropy on cosine logits, or a loss of pytorch-metric-learning that replaces it. Pair
    losses (`multi_similarity`, `n_pair`, `lifted_structure`) have no centres: they get an auxiliary classifier, whose
    weights they are. The centres learn at `rate` times the recipe's rate and escape weight decay, since only their
    direction matters.

    **Differs from the paper**: the nearest centres are pushed apart, as its Eqs. 8-10 say. Its prose says the farthest,
    which collapses all centres onto two antipodal points: "farthest", a negative control, needs `allow_collapse`.

    Args:
        base: The fusion: any method with a joint embedding that is fitted in one stage on the task's loss.
        regularizer: "r1", "r2", "hard", "mhe", "uniformface", "regularface", "farthest" or "none"; with options as in
            `{ name = "r1", gamma = 8 }` (`methods.parts.center_regularizers`).
        weight: Of the regulariser.
        embedding: Width of the embedding; 0 is the recipe's width.
        views: `"all"` also applies the loss to each modality alone, on the same centres, so that one modality can
            search the embeddings of another. It aligns them for classes seen in training only.
        loss: The task's cross-entropy, or a loss of pytorch-metric-learning, as above.
        rate: Multiple of the recipe's learning rate for the centres.
    """

    family = "centres"
    search: ClassVar[Mapping[str, Space]] = {"weight": LogUniform(0.1, 10.0), "rate": LogUniform(1.0, 100.0)}
    checked = (
        {},
        *({"regularizer": Regularizer(name)} for name in ("none", "r2", "hard", "mhe", "uniformface", "regularface")),
        {"regularizer": Regularizer("farthest", {"allow_collapse": True})},
        {"regularizer": Regularizer("r1", {"sample": 2})},
        {"views": "all"},
        *({"loss": loss} for loss in get_args(Loss)[1:]),
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        regularizer: Regularizer = R1,
        weight: NonNegative = 1.0,
        loss: Loss = "cross_entropy",
        embedding: Natural = 0,
        rate: Positive = 100.0,
        views: Literal["fused", "all"] = "fused",
    ) -> None:
        super().__init__(task, recipe, base)
        width = embedding or recipe.width
        self.embed = nn.Linear(_take_head(self.base, base.name), width)
        self.weight, self.rate, self.views, self.loss_name = weight, rate, views, loss
        built = regularizer.build()
        # Proxy losses own their centres and add the regulariser themselves; the others get a cosine classifier.
        classifier = loss in ("cross_entropy", *PAIRS)
        self.classifier = CosineClassifier(task.num_outputs, width) if classifier else None
        self.regularizer = built if classifier else None
        self.criterion = metric_loss(loss, task.num_outputs, width, None if classifier else built, weight)
        self.miner = MultiSimilarityMiner() if loss == "multi_similarity" else None

    def centers(self) -> Tensor:
        """The class centres, `[C, e]`, not normalised."""
        parameter = self._center_parameter()
        return parameter.T if isinstance(self.criterion, NormalizedSoftmaxLoss) else parameter

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.embed(self.base.fuse(z, present))

    def predict(self, fused: Tensor) -> Tensor:
        return cosine_logits(fused, self.centers()) if self.classifier is None else self.classifier(fused)

    def auxiliary(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        terms = self.base.auxiliary(self._of_base(out, batch.present), batch)
        embeddings, labels = self._rows(out, batch)
        if self.classifier is not None:
            terms["classifier"] = F.cross_entropy(self.classifier(embeddings), labels)
        if self.criterion is not None:
            # In float32: the library would cast its centres to the embeddings' type, for good.
            embeddings = embeddings.float()
            mined = None if self.miner is None else self.miner(embeddings, labels)
            terms[self.loss_name] = self.criterion(embeddings, labels, mined)
        if self.regularizer is not None:
            terms["centers"] = self.weight * self.regularizer(self.centers())
        return terms

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        return self.base.diagnose(self._of_base(out, present), present)

    def stages(self) -> tuple[Stage, ...]:
        (stage,) = self.base.stages()
        own = (self.embed, self.classifier, self.criterion)
        return (
            replace(
                stage,
                method=self,
                loss="terms",
                terms=(self.auxiliary, *(stage.terms or ())),
                learn=(*stage.learn, *(part for part in own if part is not None)) if stage.learn else (),
                rates=(*stage.rates, (self._center_parameter(), self.rate)),
            ),
        )

    @torch.no_grad()
    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        found = self.base.summary(train, test)
        found |= {f"centers_{name}": value for name, value in center_statistics(self.centers()).items()}
        if self.task.goal.ranked:
            seen, unseen = first_rows(train), first_rows(test)
            views = {"fused": self.fuse(unseen.z, unseen.present)}
            # Encodings that have seen other modalities (a transformer's) cannot show what one modality alone finds.
            if self.separable and _innermost(self.base).pools_apart and unseen.present.all():
                views |= {name: self._alone(unseen.z, unseen.present, m) for m, name in enumerate(self.task.names)}
            found |= protocol(self.fuse(seen.z, seen.present), seen.target, views, unseen.target)
        return found

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        if not task.goal.one_class:
            return f"needs one class per row, and the target of {task.name} is {task.target}"
        if task.num_outputs == 2 and options.get("regularizer", R1).name != "none":
            return "two centres are antipodal without help: there is nothing to regularise"
        return super().applies_to(task, options) or _reason_against(task, cls.chosen_base(options))

    def _of_base(self, out: Output, present: Tensor) -> Output:
        """The output with the joint representation the base knows as `fused`, where it looks at it."""
        looks = any(
            getattr(type(self.base), station) is not getattr(Method, station) for station in ("auxiliary", "diagnose")
        )
        return out._replace(fused=self.base.fuse(out.z, present)) if looks else out

    def _rows(self, out: Output, batch: Batch) -> tuple[Tensor, Tensor]:
        """The embeddings the loss sees: fused rows, and with `views = "all"` every present modality of a row alone."""
        if self.views == "fused":
            return out.fused, batch.target
        embeddings, labels = [out.fused], [batch.target]
        for m in range(len(self.task.modalities)):
            rows = batch.present[:, m]
            embeddings.append(self._alone(out.z, batch.present, m)[rows])
            labels.append(batch.target[rows])
        return torch.cat(embeddings), torch.cat(labels)

    def _alone(self, z: Tensor, present: Tensor, m: int) -> Tensor:
        """Embeddings of modality `m` as if the others were absent: `[B, e]`."""
        only = torch.zeros_like(present)
        only[:, m] = present[:, m]
        return self.fuse(torch.where(only.unsqueeze(-1), z, 0.0), only)

    def _center_parameter(self) -> nn.Parameter:
        if self.classifier is not None:
            return self.classifier.centers
        parameter = self.criterion.W if isinstance(self.criterion, NormalizedSoftmaxLoss) else self.criterion.proxies  # pyright: ignore
        assert isinstance(parameter, nn.Parameter)
        return parameter


def _reason_against(task: Task, base: Base) -> str | None:
    """Why the centres cannot replace the head of the base, found by building it without memory."""
    with torch.device("meta"):
        return _headless(base.build(task, Recipe()), base.name)


def _headless(base: Method, name: str) -> str | None:
    """Why the base has no linear head that can be exchanged for centres; None if it has."""
    first, *more = base.stages()
    if more or first.solve is not None:
        return f"`base` must be fitted in one stage by gradient, got {name!r}"
    if _innermost(base).head is None:
        return f"`base` must have a joint embedding, got {name!r}, whose `fuse` returns logits"
    if first.loss == "terms":
        return f"`base` must be trained on the task's loss, got {name!r}, whose own loss predicts with its head"
    return None


def _take_head(base: Method, name: str) -> int:
    """Remove the base's own linear head, which the centres replace, and return the width of what it saw."""
    if reason := _headless(base, name):
        raise ValueError(f"SkewedMean: {reason}")
    inner = _innermost(base)
    assert inner.head is not None
    width = inner.head.in_features
    inner.head = None
    return width


def _innermost(method: Method) -> Method:
    while isinstance(method, Wrapper):
        method = method.base
    return method
