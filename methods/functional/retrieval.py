"""Class retrieval by cosine similarity: Recall@K over row-chunked queries.

A query is a hit at K when at least one of its K nearest gallery rows has its class. Rows are L2-normalised inside.
Queries whose class is not in the gallery cannot be answered by any method: they are dropped from the average, and
`without_positive` counts them.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 1024  # rows of the similarity matrix alive at once


def first_positive_rank(
    queries: Tensor,
    gallery: Tensor,
    query_labels: Tensor,
    gallery_labels: Tensor,
    exclude_self: bool,
    chunk: int = CHUNK,
) -> Tensor:
    """Rank each query's nearest gallery row of its own class.

    Ties count against the query: a collapsed embedding, whose similarities are all equal, must not look perfect.
    A similarity that is not a number ranks last, so that a broken query is a miss and not a hit.

    Args:
        queries: `[n, d]`.
        gallery: `[m, d]`; the same rows as `queries`, in the same order, when `exclude_self`.
        query_labels: `[n]`.
        gallery_labels: `[m]`.
        exclude_self: Leave row i of the gallery out of query i, by index (duplicates of i stay).
        chunk: Queries compared at once.

    Returns:
        `[n]` long: 0 for a hit at K=1; -1 where the gallery holds no row of the query's class.
    """
    if len(query_labels) != len(queries) or len(gallery_labels) != len(gallery):
        raise ValueError(f"Expected one label per row, but got {len(query_labels)} and {len(gallery_labels)}")
    if exclude_self and len(queries) != len(gallery):
        raise ValueError(
            "`exclude_self` needs the queries themselves as gallery, in the same order, "
            f"but got {len(queries)} queries and {len(gallery)} gallery rows"
        )
    queries, gallery = F.normalize(queries, dim=1), F.normalize(gallery, dim=1)
    ranks = []
    for start in range(0, len(queries), chunk):
        rows = torch.arange(start, min(start + chunk, len(queries)), device=queries.device)
        similarity = queries[rows] @ gallery.T
        similarity = similarity.masked_fill(similarity.isnan(), -torch.inf)
        same = query_labels[rows, None] == gallery_labels[None, :]
        other = ~same  # taken before self leaves `same`: a row is no competitor of its own query either
        if exclude_self:
            same[torch.arange(len(rows), device=rows.device), rows] = False
        best = similarity.masked_fill(~same, -torch.inf).amax(dim=1, keepdim=True)
        rank = (other & (similarity >= best)).sum(dim=1)
        ranks.append(rank.masked_fill(~same.any(dim=1), -1))
    return torch.cat(ranks) if ranks else query_labels.new_zeros(0, dtype=torch.long)


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
