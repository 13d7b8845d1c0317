"""The shared body of the attention methods, so that they differ from each other in the attention alone.

Tokens of every image, sequence or text are pooled by a query from the other modalities; vectors pass through. The
pooled modalities are fused as in the thesis, LayerNorm(W_y y + W_x x), for any number of them. `query = "constant"` is
the fair twin: the same pooling, blind to the other modalities.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import torch
from msgspec import Meta
from torch import Tensor, nn

from datamodules.options import Count, Positive
from datamodules.spec import Task
from methods import Method, Recipe, Tokens
from methods.functional.attention import (
    Mixture,
    cell_centers,
    gaussian_expectation,
    grid_paraboloid_expectation,
    mixture_expectation,
    moments,
    paraboloid_expectation,
    rbf_axes,
    ridge_operator,
    tensor_grid,
)
from methods.functional.entmax import entmax_expectation
from methods.functional.rows import no_autocast

Query = Literal["others", "constant"]
Align = Literal["scaled_dot", "multiplicative", "additive"]
PerAxis = Annotated[int, Meta(ge=2)]
Nodes = Annotated[int, Meta(ge=8)]
Shape = Literal["gaussian", "paraboloid"]

RIDGE = 0.01  # the thesis' setting
MAX_RBFS = 10  # per axis, as in the thesis (N = 100)


class Attended(NamedTuple):
    """The attention over one modality's tokens.

    Attributes:
        grid: Of the tokens.
        weights: `[B, L]`, what the tokens are multiplied by; of a continuous density these can be negative.
        scores: `[B, L]` discrete probabilities; of a density predicted directly, None.
        mixture: Components of the density, `[B, K]`; of a discrete attention, None.
        shape: Of the components.
    """

    grid: tuple[int, ...]
    weights: Tensor
    scores: Tensor | None = None
    mixture: Mixture | None = None
    shape: Shape | None = None


class AttentionMethod(Method):
    """Pools by attention; a subclass says how scores become weights of tokens (`attend`).

    Args:
        heads: Score maps per modality; their probabilities are averaged into one.
        query: "others" asks the other modalities what to look at, "constant" learns one query for all rows.
        scored: False when the subclass predicts its density without scores of tokens.
        align: How a query q and a token h are compared: "scaled_dot", q W h / sqrt(d) (Vaswani et al., 2017);
            "multiplicative", q W h (Luong et al., 2015); "additive", v tanh(q + W h) (Bahdanau et al., 2015).
    """

    family = "attention"
    pools_apart = False

    def __init__(self, task: Task, recipe: Recipe, heads: int, query: Query, scored: bool, align: Align) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        if recipe.width % heads:
            raise ValueError(f"{type(self).__name__}: `heads` must divide the width {recipe.width}, got {heads}")
        self.heads = heads
        width, attended = recipe.width, attended_names(task)
        # No biases: an absent modality is zero and must ask nothing; a key's bias does not move a softmax.
        asking = [n for n in task.names if query == "others" and any(n != m for m in attended)]
        self.ask = nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in asking})
        self.key = nn.ModuleDict({name: nn.Linear(width, width, bias=False) for name in attended if scored})
        self.constant = nn.ParameterDict({name: nn.Parameter(torch.randn(width)) for name in attended})
        self.joint = nn.Linear(len(task.modalities) * width, width)
        self.norm = nn.LayerNorm(width)
        self.align: Align = align
        parts = (heads, width // heads)
        added = attended if scored and align == "additive" else ()
        self.weigh = nn.ParameterDict({name: nn.Parameter(torch.randn(parts) / parts[1] ** 0.5) for name in added})

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        if not attended_names(task):
            return "needs a modality with several tokens (image, sequence or text) to attend to"
        return super().applies_to(task, options)

    def attention(self, tokens: dict[str, Tokens], present: Tensor) -> dict[str, Attended]:
        """What every modality with several tokens looks at: pure, called by `pool`, drawn by `polymodal attend`."""
        means = {name: t.mean() for name, t in tokens.items()}
        attended = {}
        for name, constant in self.constant.items():
            if name in tokens:
                query = constant.expand(len(present), -1)
                for other in self.ask:
                    if other != name and other in means:
                        query = query + self.ask[other](means[other])
                attended[name] = self.attend(name, _visible(tokens[name]), query, means[name])
        return attended

    @abstractmethod
    def attend(self, name: str, tokens: Tokens, query: Tensor, mean: Tensor) -> Attended:
        """Attention over the tokens of modality `name`, given a query `[B, D]` and the tokens' mean `[B, D]`."""

    def scores(self, name: str, tokens: Tokens, query: Tensor) -> Tensor:
        """How well query and keys agree, `[B, heads, L]`, -inf at padding."""
        key = self.key[name](tokens.x).unflatten(-1, (self.heads, -1))
        query = query.unflatten(-1, (self.heads, -1))
        if self.align == "additive":
            scores = torch.einsum("hd,blhd->bhl", self.weigh[name], (query.unsqueeze(1) + key).tanh())
        else:
            scale = math.sqrt(query.shape[-1]) if self.align == "scaled_dot" else 1.0
            scores = torch.einsum("bhd,blhd->bhl", query, key) / scale
        return scores if tokens.mask is None else scores.masked_fill(~tokens.mask.unsqueeze(1), -torch.inf)

    def pool(self, tokens: dict[str, Tokens], present: Tensor) -> Tensor:
        attended = self.attention(tokens, present)
        z = dict(zip(self.task.names, super().pool(tokens, present).unbind(dim=1), strict=True))
        for name, attention in attended.items():
            x = _visible(tokens[name]).x
            z[name] = (attention.weights.to(x.dtype).unsqueeze(1) @ x).squeeze(1)
        return torch.stack([z[name] for name in self.task.names], dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return self.norm(self.joint(z.flatten(1)))  # LayerNorm(W_y y + W_x x)


class DiscreteMethod(AttentionMethod):
    """Attention by probabilities of tokens; a subclass says how scores become probabilities (`normalise`).

    Args:
        heads: See `AttentionMethod`, and so are `query` and `align`.
    """

    checked = ({}, {"query": "constant", "heads": 2}, {"align": "additive"}, {"align": "multiplicative"})

    def __init__(
        self, task: Task, recipe: Recipe, *, heads: Count = 4, query: Query = "others", align: Align = "scaled_dot"
    ) -> None:
        super().__init__(task, recipe, heads, query, True, align)

    @abstractmethod
    def normalise(self, scores: Tensor) -> Tensor:
        """Scores to probabilities along the last axis; -inf gets none."""

    def attend(self, name: str, tokens: Tokens, query: Tensor, mean: Tensor) -> Attended:
        p = self.normalise(self.scores(name, tokens, query)).mean(dim=1)
        return Attended(tokens.grid, p, p)


class ContinuousMethod(AttentionMethod):
    """Attention by a density over the unit cube: c = E_p[V(t)], V a ridge regression of the tokens on RBFs.

    RBFs are Gaussians. Truncated paraboloids as RBFs, with the source's future work in mind, have a closed form under a
    Gaussian density (density and RBF change places) but not under a truncated one: in two dimensions that is the
    integral over the common part of two ellipses, whose shape changes with every density. Nothing would be gained: the
    value function is a regression on the tokens either way.

    Args:
        heads: See `AttentionMethod`, and so are `query` and `align`.
        setting: "combined" matches the density's moments to discrete scores; "direct" predicts mean and covariance.
        rbfs: RBFs per axis; None for two more than cells, at most 10.
        rbf_width: Standard deviation of an RBF in units of the RBFs' spacing (0.28 in the thesis: variance 0.001).
    """

    shape: Shape  # of the density's components
    checked = ({}, {"setting": "direct"}, {"align": "additive"})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        heads: Count = 4,
        query: Query = "others",
        setting: Literal["combined", "direct"] = "combined",
        rbfs: PerAxis | None = None,
        rbf_width: Positive = 0.5,
        align: Align = "scaled_dot",
    ) -> None:
        super().__init__(task, recipe, heads, query, setting == "combined", align)
        self.rbfs, self.rbf_width = rbfs, rbf_width
        dims = {m.name: 2 if m.kind == "image" else 1 for m in task.modalities}
        direct = attended_names(task) if setting == "direct" else ()
        self.locate = nn.ModuleDict({name: _Locator(recipe.width, dims[name]) for name in direct})

    def attend(self, name: str, tokens: Tokens, query: Tensor, mean: Tensor) -> Attended:
        # Densities are fitted and integrated in full precision: half of it has too few digits for a covariance.
        wide = torch.promote_types(tokens.x.dtype, torch.float32)
        if name in self.locate:
            scores = None
            mu, cov = (x.to(wide) for x in self.locate[name](query, mean))
            mixture = Mixture(torch.ones_like(mu[:, :1]), mu.unsqueeze(1), cov.unsqueeze(1))
        else:
            scores = self.scores(name, tokens, query).to(wide).softmax(dim=-1).mean(dim=1)
            with no_autocast(tokens.x):
                mixture = self.density(cell_centers(tokens.grid).to(tokens.x.device, wide), scores)
        rbfs = self.basis(tokens)
        with no_autocast(tokens.x):
            weights = self.expectation(mixture, rbfs) @ rbfs.operator.T.to(wide)
        return Attended(tokens.grid, weights, scores, mixture, self.shape)

    def density(self, points: Tensor, scores: Tensor) -> Mixture:
        """The density that stands for discrete probabilities: one component with their moments."""
        mu, cov = moments(points, scores)
        return Mixture(torch.ones_like(mu[:, :1]), mu.unsqueeze(1), cov.unsqueeze(1))

    @abstractmethod
    def expectation(self, mixture: Mixture, rbfs: "Rbfs") -> Tensor:
        """E_p of every RBF, `[B, N]`."""

    def basis(self, tokens: Tokens) -> "Rbfs":
        """The RBFs and the regression operator of the tokens' grid, on their device."""
        return rbfs_of(tokens.grid, self.rbfs, self.rbf_width, tokens.x.device)


class Rbfs(NamedTuple):
    """A tensor grid of RBFs: `axes` (float64), the variance on each, and the ridge operator `[L, N]`."""

    axes: tuple[Tensor, ...]
    var: tuple[float, ...]
    operator: Tensor

    @property
    def centers(self) -> Tensor:
        """`[N, D]`."""
        return tensor_grid(self.axes)

    @property
    def covs(self) -> Tensor:
        """`[N, D, D]`."""
        diagonal = torch.tensor(self.var, dtype=self.axes[0].dtype).to(self.axes[0].device)
        return torch.diag(diagonal).expand(self.operator.shape[1], -1, -1)


def gaussian_mixture(mixture: Mixture, rbfs: Rbfs) -> Tensor:
    """E_p of the RBFs under Gaussians."""
    return mixture_expectation(mixture, lambda mu, cov: gaussian_expectation(mu, cov, rbfs.centers, rbfs.covs))


def paraboloid_mixture(mixture: Mixture, rbfs: Rbfs, nodes: int) -> Tensor:
    """E_p of the RBFs under truncated paraboloids: closed form in 1-D, chord rule with so many nodes in 2-D."""
    if len(rbfs.axes) == 1:
        return mixture_expectation(mixture, lambda mu, cov: paraboloid_expectation(mu, cov, rbfs.centers, rbfs.covs))
    (axis_x, axis_y), (var_x, var_y) = rbfs.axes, rbfs.var
    return mixture_expectation(
        mixture, lambda mu, cov: grid_paraboloid_expectation(mu, cov, axis_x, axis_y, (var_x, var_y), nodes)
    )


def entmax_mixture(mixture: Mixture, rbfs: Rbfs, alpha: float, nodes: int) -> Tensor:
    """E_p of the RBFs under densities of alpha-entmax."""
    return mixture_expectation(mixture, lambda mu, cov: entmax_expectation(mu, cov, rbfs.axes, rbfs.var, alpha, nodes))


@lru_cache(maxsize=64)
def rbfs_of(grid: tuple[int, ...], rbfs: int | None, width: float, device: torch.device) -> Rbfs:
    """RBFs for a token grid, computed once in float64 and kept per device."""
    # Two more than cells: with the zero padding, as many as cells could not follow the tokens at the edge.
    count = tuple(rbfs or min(n + 2, MAX_RBFS) for n in grid)
    var = tuple((width / (n - 1)) ** 2 for n in count)
    # Planning builds methods under `torch.device("meta")`: what is cached must not become meta with it.
    with torch.device("cpu"):
        # An odd grid cannot be padded symmetrically and goes without.
        operator = ridge_operator(grid, count, var, RIDGE, pad=all(n % 2 == 0 for n in grid))
        axes = rbf_axes(count)
    return Rbfs(tuple(axis.to(device) for axis in axes), var, operator.to(device))


class _Locator(nn.Module):
    """Predicts mean and covariance of a density in the unit cube from a query and the tokens' mean."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.net = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, dim + dim * (dim + 1) // 2))

    def forward(self, query: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        out = self.net(torch.cat([query, mean], dim=-1))
        mu, scale = out[:, : self.dim].sigmoid(), out[:, self.dim : 2 * self.dim]
        # Standard deviations between 0.02 and 0.5: neither a point between two RBFs nor wider than the image.
        root = torch.diag_embed(0.02 + 0.48 * scale.sigmoid())
        if self.dim == 2:
            skew = 0.5 * out[:, 2 * self.dim].tanh()
            root = root + torch.stack([torch.zeros_like(skew)] * 2 + [skew, torch.zeros_like(skew)], -1).view(-1, 2, 2)
        return mu, root @ root.transpose(-1, -2)


def attended_names(task: Task) -> tuple[str, ...]:
    """The modalities with more than one token."""
    return tuple(m.name for m in task.modalities if m.kind == "image" or (m.kind != "vector" and m.shape[0] > 1))


def _visible(tokens: Tokens) -> Tokens:
    """Padding zeroed and masked; a row of padding alone (an absent text) keeps all its cells, which are zero."""
    if tokens.mask is None:
        return tokens
    mask = tokens.mask | ~tokens.mask.any(dim=1, keepdim=True)
    return Tokens(tokens.x * tokens.mask.unsqueeze(-1), tokens.grid, mask)
