"""Centre regularisation and metric learning on the joint embedding of any fusion method."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from pytorch_metric_learning.losses import (
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
)
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.regularizers import BaseRegularizer
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Base, Encoded, Method, Output, Recipe, Stage, Wrapper, register
from methods.functional.centers import Form, center_statistics
from methods.functional.retrieval import recall_at_k, recall_between, without_positive
from methods.parts.center_regularizers import Kind, center_regularizer

Loss = Literal["cross_entropy", "proxy_anchor", "normalized_softmax", "multi_similarity", "proxy_nca"]

SCALE = 16.0  # initial inverse temperature of the cosine logits
SUMMARY_ROWS = 5_000  # k-means and all-pairs ranks of more rows would cost more than the training


@register("skewed_mean")
class SkewedMean(Wrapper):
    """Cosine head on the joint embedding of any fusion, whose class weights are centres that a regulariser spreads.

    `kind` is the regulariser (`methods.functional.centers`), `weight` its weight. With C classes in an embedding of
    width e the base loss alone separates the centres when C <= e + 1: look for effects where C is larger.

    `loss` is the task's cross-entropy on cosine logits, or a loss of pytorch-metric-learning that replaces it. Pair
    losses have no centres: `multi_similarity` gets an auxiliary classifier, whose weights they are. The centres learn
    at `rate` times the recipe's rate and escape weight decay, since only their direction matters.

    **Differs from the paper**: the nearest centres are pushed apart, as its Eqs. 8-10 say. Its prose says the farthest,
    which collapses all centres onto two antipodal points: `kind = "farthest"`, a negative control, needs
    `allow_collapse`. The margin `delta` acts only with `form = "softplus"`.

    Args:
        base: The fusion: any method with a joint embedding that is fitted in one stage.
        embedding: Width of the embedding; 0 is the recipe's width.
        views: `"all"` also applies the loss to each modality alone, on the same centres, so that one modality can
            search the embeddings of another. It aligns them for classes seen in training only.
        gamma: Of r1.
        lam: Of r2 and farthest; 0 is their default, 32 and 4.
        s: Of mhe.
        sample: Centres per step of r1, for very many classes; 0 is all.
    """

    family = "centres"

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        base: Base = Base("concat"),
        kind: Kind = "r1",
        weight: float = 1.0,
        loss: Loss = "cross_entropy",
        embedding: int = 0,
        gamma: float = 16.0,
        lam: float = 0.0,
        s: float = 1.0,
        delta: float = 0.0,
        form: Form = "mean",
        sample: int = 0,
        rate: float = 100.0,
        views: Literal["fused", "all"] = "fused",
        allow_collapse: bool = False,
    ) -> None:
        super().__init__(task, recipe, base)
        _check(loss=(loss, get_args(Loss)), views=(views, ("fused", "all")))
        if weight < 0 or rate <= 0:
            raise ValueError(f"skewed_mean: `weight` must be >= 0 and `rate` > 0, got {weight} and {rate}")
        width = embedding or recipe.width
        self.embed = nn.Linear(_take_head(self.base, base.name), width)
        self.weight, self.rate, self.views = weight, rate, views
        regularizer = center_regularizer(
            kind,
            gamma=gamma,
            lam=lam or None,
            s=s,
            delta=delta,
            form=form,
            sample=sample or None,
            allow_collapse=allow_collapse,
        )
        # Proxy losses own their centres and add the regulariser themselves; the others get a cosine classifier.
        classifier = loss in ("cross_entropy", "multi_similarity")
        self.classifier = CosineClassifier(task.num_outputs, width) if classifier else None
        self.regularizer = regularizer if classifier else None
        self.loss_name = loss
        self.criterion = _criterion(loss, task.num_outputs, width, None if classifier else regularizer, weight)
        self.miner = MultiSimilarityMiner() if loss == "multi_similarity" else None

    def centers(self) -> Tensor:
        """The class centres, `[C, e]`, not normalised."""
        if self.classifier is not None:
            return self.classifier.centers
        parameter = self._center_parameter()
        return parameter.T if isinstance(self.criterion, NormalizedSoftmaxLoss) else parameter

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.embed(self.base.fuse(z, present))

    def predict(self, fused: Tensor) -> Tensor:
        if self.classifier is not None:
            return self.classifier(fused)
        return cosine_logits(fused, self.centers(), SCALE)

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
        center = self._center_parameter()
        own = (self.embed, self.classifier, self.criterion)
        return (
            replace(
                stage,
                method=self,
                loss="terms",
                terms=(self.auxiliary, *(stage.terms or ())),
                learn=(*stage.learn, *(part for part in own if part is not None)) if stage.learn else (),
                rates=(*stage.rates, (center, self.rate)),
            ),
        )

    @torch.no_grad()
    def summary(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        found = self.base.summary(train, test)
        found |= {f"centers_{name}": value for name, value in center_statistics(self.centers()).items()}
        if self.task.goal.ranked:
            found |= self._protocol(train, test)
        return found

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        if not task.goal.one_class:
            return f"needs one class per row, and the target of {task.name} is {task.target}"
        if task.num_outputs == 2 and options.get("kind", "r1") != "none":
            return "two centres are antipodal without help: there is nothing to regularise"
        return super().applies_to(task, options)

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

    def _protocol(self, train: Iterable[Encoded], test: Iterable[Encoded]) -> dict[str, float]:
        """What a table of unseen-class recall must be read with (spec section 6), on at most SUMMARY_ROWS rows."""
        seen, unseen = _gather(train), _gather(test)
        x, y = self.fuse(seen.z, seen.present), seen.target
        views, labels = {"fused": self.fuse(unseen.z, unseen.present)}, unseen.target
        found = {
            # Low: undertrained, and then a comparison on unseen classes means nothing.
            "train_recall_at_1": recall_at_k(x, x, y, y, (1,), exclude_self=True)[1],
            "queries_without_positive": without_positive(labels, labels, exclude_self=True).sum().item(),
            "nmi": normalized_mutual_information(views["fused"], labels),
        }
        # Encodings that have seen other modalities (a transformer's) cannot show what one modality alone finds.
        if self.separable and _innermost(self.base).pool.__func__ is Method.pool and unseen.present.all():
            views |= {name: self._alone(unseen.z, unseen.present, m) for m, name in enumerate(self.task.names)}
            pairs = [(a, b) for a in self.task.names for b in (*self.task.names, "fused")]
            recalls = recall_between(views, labels, pairs)
            found |= {f"recall_at_1_{a}_to_{b}": recalls[f"{a}->{b}"] for a, b in pairs}
        return found


class CosineClassifier(nn.Module):
    """Logits: scaled cosines to one centre per class, with a learned scale."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.centers = _new_centers(classes, width)
        self.log_scale = nn.Parameter(torch.tensor(SCALE).log())

    def forward(self, x: Tensor) -> Tensor:
        return cosine_logits(x, self.centers, self.log_scale.exp())


def cosine_logits(x: Tensor, centers: Tensor, scale: Tensor | float) -> Tensor:
    """`[B, C]` scaled cosines of rows and centres."""
    return scale * F.normalize(x, dim=1) @ F.normalize(centers, dim=1).T.to(x.dtype)


def normalized_mutual_information(x: Tensor, labels: Tensor) -> float:
    """NMI of the classes and as many k-means clusters of the normalised rows: 10 restarts, arithmetic mean."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    classes = labels.unique().numel()
    rows = F.normalize(x.detach().float(), dim=1).cpu().numpy()
    clusters = KMeans(classes, n_init=10, random_state=0).fit_predict(rows)  # pyright: ignore[reportArgumentType]
    return float(normalized_mutual_info_score(labels.cpu().numpy(), clusters))


def _criterion(
    loss: Loss, classes: int, width: int, regularizer: BaseRegularizer | None, weight: float
) -> nn.Module | None:
    """The library's loss, its centres made on the current default device; None for cross-entropy."""
    attached: dict[str, Any] = {"weight_regularizer": regularizer, "weight_reg_weight": weight}
    match loss:
        case "cross_entropy":
            return None
        case "multi_similarity":
            return MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
        case "normalized_softmax":
            criterion = NormalizedSoftmaxLoss(classes, width, temperature=0.05, **attached)
            criterion.W = nn.Parameter(_new_centers(classes, width).data.T.contiguous())
            return criterion
        case "proxy_anchor":
            criterion = ProxyAnchorLoss(classes, width, margin=0.1, alpha=32, **attached)
        case "proxy_nca":
            criterion = ProxyNCALoss(classes, width, softmax_scale=SCALE, **attached)
    criterion.proxies = _new_centers(classes, width)
    return criterion


def _new_centers(classes: int, width: int) -> nn.Parameter:
    # The library allocates outside of torch's default device; a plan builds every cell on `meta`.
    return nn.Parameter(F.normalize(torch.randn(classes, width), dim=1))


def _take_head(base: Method, name: str) -> int:
    """Remove the base's own linear head, which the centres replace, and return the width of what it saw."""
    inner = _innermost(base)
    if len(base.stages()) != 1 or base.stages()[0].solve is not None:
        raise ValueError(f"skewed_mean: base {name!r} must be fitted in one stage by gradient")
    if inner.head is None:
        raise ValueError(f"skewed_mean: base {name!r} has no joint embedding: its `fuse` returns logits")
    width = inner.head.in_features
    inner.head = None
    return width


def _innermost(method: Method) -> Method:
    while isinstance(method, Wrapper):
        method = method.base
    return method


def _gather(stream: Iterable[Encoded]) -> Encoded:
    """The first SUMMARY_ROWS rows of a stream."""
    batches: list[Encoded] = []
    rows = 0
    for batch in stream:
        batches.append(batch)
        rows += len(batch.target)
        if rows >= SUMMARY_ROWS:
            break
    return Encoded(*(torch.cat(part)[:SUMMARY_ROWS] for part in zip(*batches, strict=True)))


def _check(**choices: tuple[str, tuple[str, ...]]) -> None:
    for name, (value, known) in choices.items():
        if value not in known:
            raise ValueError(f"skewed_mean: `{name}` must be one of {', '.join(known)}, got {value!r}")
