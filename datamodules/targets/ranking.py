"""Ranks: what retrieval by class and pairing by instance have in common."""

import torch
import torch.nn.functional as F
from torch import Tensor

from datamodules.targets import Target

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


class Ranked(Target):
    """A row is a query, scored by the rank, from 1, of the first right answer among the other rows.

    `kept` is the rank, [N] by class or [N, P] by instance in every direction. A query that nothing in the gallery can
    answer gets -1 and is left out of every average, and so does a row that does not ask, because it is in the
    `gallery` (see `Split`).
    """

    metrics = ("recall_at_1",)
    ranked = True
    probed = False

    def scores(self, kept: Tensor, target: Tensor) -> dict[str, float]:
        return self.recalls(kept)

    def recalls(self, rank: Tensor) -> dict[str, float]:
        """Recall at each K, and the median rank."""
        rank = rank[rank > 0].double()
        found = {f"recall_at_{k}": float((rank <= k).double().mean()) for k in self.task.ks}
        return {**found, "median_rank": float(rank.median())}
