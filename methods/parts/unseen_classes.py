"""What a table of recall on unseen classes must be read with, once per cell."""

from collections.abc import Iterable, Mapping
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from methods.base import Encoded
from methods.functional.retrieval import recall_at_k, without_positive

SUMMARY_ROWS = 5_000  # k-means and all-pairs ranks of more rows would cost more than the training


def first_rows(stream: Iterable[Encoded]) -> Encoded:
    """The first SUMMARY_ROWS rows of a stream."""
    batches: list[Encoded] = []
    rows = 0
    for batch in stream:
        batches.append(batch)
        rows += len(batch.target)
        if rows >= SUMMARY_ROWS:
            break
    return Encoded(*(torch.cat(part)[:SUMMARY_ROWS] for part in zip(*batches, strict=True)))


def protocol(train: Tensor, train_labels: Tensor, views: Mapping[str, Tensor], labels: Tensor) -> dict[str, float]:
    """Recall on the training classes, NMI and unanswerable queries of the unseen ones, and recall between modalities.

    Args:
        train: Embeddings `[n, e]` of the training classes.
        train_labels: `[n]`.
        views: `"fused"` embeddings `[m, e]` of the unseen classes and, by name, those of modalities alone.
        labels: `[m]`.
    """
    found = {
        # Low: undertrained, and then a comparison on unseen classes means nothing.
        "train_recall_at_1": recall_at_k(train, train, train_labels, train_labels, (1,), exclude_self=True)[1],
        "queries_without_positive": without_positive(labels, labels, exclude_self=True).sum().item(),
        "nmi": normalized_mutual_information(views["fused"], labels),
    }
    # A row's own counterpart is left out of the gallery too: another example of its class is what is asked for.
    for a, b in product([name for name in views if name != "fused"], views):
        recall = recall_at_k(views[a], views[b], labels, labels, (1,), exclude_self=True)[1]
        found[f"recall_at_1_{a}_to_{b}"] = recall
    return found


def normalized_mutual_information(x: Tensor, labels: Tensor) -> float:
    """NMI of the classes and as many k-means clusters of the normalised rows: 10 restarts, arithmetic mean."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    classes = labels.unique().numel()
    rows = F.normalize(x.detach().float(), dim=1).cpu().numpy()
    clusters = KMeans(classes, n_init=10, random_state=0).fit_predict(rows)  # pyright: ignore[reportArgumentType]
    return float(normalized_mutual_info_score(labels.cpu().numpy(), clusters))
