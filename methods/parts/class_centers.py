"""Class centres: a cosine classifier whose weights they are, and the metric-learning losses that bring their own."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import DotProductSimilarity
from pytorch_metric_learning.losses import (
    LiftedStructureLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    NPairsLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
)
from pytorch_metric_learning.reducers import MeanReducer
from pytorch_metric_learning.regularizers import BaseRegularizer
from torch import Tensor, nn

Loss = Literal[
    "cross_entropy",
    "proxy_anchor",
    "normalized_softmax",
    "multi_similarity",
    "proxy_nca",
    "n_pair",
    "lifted_structure",
]
PAIRS = ("multi_similarity", "n_pair", "lifted_structure")  # compare rows with each other and have no centres

SCALE = 16.0  # initial inverse temperature of the cosine logits


class CosineClassifier(nn.Module):
    """Logits: scaled cosines to one centre per class, with a learned scale."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.centers = _new_centers(classes, width)
        self.log_scale = nn.Parameter(torch.tensor(SCALE).log())

    def forward(self, x: Tensor) -> Tensor:
        return cosine_logits(x, self.centers, self.log_scale.exp())


def cosine_logits(x: Tensor, centers: Tensor, scale: Tensor | float = SCALE) -> Tensor:
    """`[B, C]` scaled cosines of rows and centres."""
    return scale * F.normalize(x, dim=1) @ F.normalize(centers, dim=1).T.to(x.dtype)


class ProxyNCA(ProxyNCALoss):
    """`d(x, p_y) + log sum_{c != y} exp(-d(x, p_c))`, d the scaled squared distance of unit vectors.

    As in the original (Movshovitz-Attias et al., 2017): the library's own keeps the positive in the denominator, which
    makes it a normalised softmax. Miners have no say.
    """

    def nca_computation(
        self, query: Tensor, reference: Tensor, query_labels: Tensor, reference_labels: Tensor, indices_tuple: Any
    ) -> dict[str, dict[str, Any]]:
        """One loss per row, as the library's reducers take them."""
        distance = self.softmax_scale * self.distance(query, reference)
        own = query_labels.unsqueeze(1) == reference_labels
        losses = distance[own] + (-distance).masked_fill(own, -torch.inf).logsumexp(dim=1)
        rows = torch.arange(len(query), device=query.device)
        return {"loss": {"losses": losses, "indices": rows, "reduction_type": "element"}}


def metric_loss(
    loss: Loss, classes: int, width: int, regularizer: BaseRegularizer | None, weight: float
) -> nn.Module | None:
    """The library's loss, its centres made on the current default device; None for cross-entropy."""
    attached: dict[str, Any] = {"weight_regularizer": regularizer, "weight_reg_weight": weight}
    match loss:
        case "cross_entropy":
            return None
        case "multi_similarity":
            return MultiSimilarityLoss(alpha=2, beta=50, base=0.5)
        case "n_pair":
            # As the original has it, on plain inner products; the library's default normalises.
            return NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False), reducer=MeanReducer())
        case "lifted_structure":
            return LiftedStructureLoss(neg_margin=1)
        case "normalized_softmax":
            criterion = NormalizedSoftmaxLoss(classes, width, temperature=0.05, **attached)
            criterion.W = nn.Parameter(_new_centers(classes, width).data.T.contiguous())
            return criterion
        case "proxy_anchor":
            criterion = ProxyAnchorLoss(classes, width, margin=0.1, alpha=32, **attached)
        case "proxy_nca":
            criterion = ProxyNCA(classes, width, softmax_scale=SCALE, **attached)
    criterion.proxies = _new_centers(classes, width)
    return criterion


def _new_centers(classes: int, width: int) -> nn.Parameter:
    # The library allocates outside of torch's default device; a plan builds every cell on `meta`.
    return nn.Parameter(F.normalize(torch.randn(classes, width), dim=1))
