"""Decision trees as tensors."""

# Not every function of torch says what it returns.
# pyright: reportUnknownMemberType=false

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Trees(NamedTuple):
    """T trees of at most N nodes, each `[T, N]`.

    A row at a node goes left if its column `feature` is at most `threshold`, or is missing and `missing_left`. A leaf
    is its own child on both sides; `value` is what it answers.
    """

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    value: Tensor

    @classmethod
    def empty(cls, trees: int, nodes: int) -> "Trees":
        """Trees of one leaf that answers 0."""
        integers = [torch.zeros(trees, nodes, dtype=torch.int32) for _ in range(3)]
        return cls(
            integers[0],
            torch.zeros(trees, nodes),
            torch.zeros(trees, nodes, dtype=torch.bool),
            integers[1],
            integers[2],
            torch.zeros(trees, nodes),
        )

    @classmethod
    def of_nodes(cls, nodes: NDArray[Any]) -> "Trees":
        """One tree `[N]`, of the nodes of a scikit-learn predictor."""
        leaf, itself = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        return cls(
            torch.from_numpy(np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32)),
            torch.from_numpy(_at_most(nodes["num_threshold"])),
            torch.from_numpy(nodes["missing_go_to_left"].astype(bool)),
            torch.from_numpy(np.where(leaf, itself, nodes["left"]).astype(np.int32)),
            torch.from_numpy(np.where(leaf, itself, nodes["right"]).astype(np.int32)),
            torch.from_numpy(nodes["value"].astype(np.float32)),
        )


def _at_most(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is not larger: float32 inputs go the same way as by the threshold itself."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float32)


def evaluate_trees(x: Tensor, trees: Trees) -> Tensor:
    """`[B, T]`: what each tree answers to rows `[B, F]`, in which NaN is missing."""
    (count, nodes), rows = trees.feature.shape, len(x)
    # One long vector of all nodes: `index_select` is several times as fast as indexing by a matrix.
    feature, threshold, missing_left, value = (
        part.flatten() for part in (trees.feature, trees.threshold, trees.missing_left, trees.value)
    )
    first = torch.arange(count, device=x.device).unsqueeze(1) * nodes
    children = torch.stack([first + trees.right, first + trees.left], dim=-1).flatten()
    at = first.expand(count, rows).flatten()
    columns = x.flatten()
    start = (torch.arange(rows, device=x.device) * x.shape[1]).expand(count, rows).flatten()
    for _ in range(nodes // 2):  # no path is longer
        seen = columns.index_select(0, start + feature.index_select(0, at))
        goes_left = seen <= threshold.index_select(0, at)
        goes_left |= seen.isnan() & missing_left.index_select(0, at)
        following = children.index_select(0, 2 * at + goes_left)
        if x.device.type == "cpu" and torch.equal(following, at):  # all are at their leaves
            break
        at = following
    return value.index_select(0, at).view(count, rows).T
