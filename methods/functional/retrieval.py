"""Class retrieval by cosine similarity: Recall@K over row-chunked queries.

A query is a hit at K when at least one of its K nearest gallery rows has its class. Rows are L2-normalised inside.
Queries whose class is not in the gallery cannot be answered by any method: they are dropped from the average, and
`without_positive` counts them.
"""

# Not every function of torch says what it returns.
# pyright: reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Sequence

import torch
from torch import Tensor

from datamodules.targets.ranking import first_positive_rank


def recall_at_k(
    queries: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    ks: Sequence[int],
    exclude_self: bool,
) -> dict[int, float]:
    """Fraction of answerable queries with a row of their class among the K nearest, for each K.

    NaN when no query can be answered: there is nothing to average, and 0 would be a claim.
    """
    if any(k < 1 for k in ks):
        raise ValueError(f"Expected argument `ks` to hold integers >= 1, but got {tuple(ks)}")
    rank = first_positive_rank(queries, gallery, query_labels, gallery_labels, exclude_self)
    rank = rank[rank >= 0]
    return {k: (rank < k).double().mean().item() for k in ks}


def without_positive(query_labels: Tensor, gallery_labels: Tensor, exclude_self: bool) -> Tensor:
    """Which queries have no gallery row of their class, and are dropped: `[n]` bool; its sum is the count."""
    classes, inverse, counts = gallery_labels.unique(return_inverse=True, return_counts=True)
    if exclude_self:  # the row itself does not count
        return counts[inverse] < 2
    return ~torch.isin(query_labels, classes)
