"""Channel exchange: images of one shape through shared convolutions, swapping the channels that died."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.options import Fraction, NonNegative, Positive
from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Stage, Tokens, register
from methods.functional.exchange import channel_groups, exchange_penalty, exchanged, swap
from methods.functional.fusion import gates, weighted_sum
from methods.parts.decisions import losses_of_each
from methods.parts.encoders import Conv2d
from methods.parts.private_norm import PrivateNorm
from methods.parts.search import LogUniform, Space


@register("channel_exchange")
class ChannelExchange(Method):
    """Replace a modality's dying channels by those of the others, between shared convolutions and private norms.

    Where the scale of a private batch norm falls below the threshold, the channel becomes the mean of the other
    modalities' (before the ReLU). L1 on disjoint groups of channels, one per modality, makes scales fall. An exchanged
    channel gets no task gradient: exchange is absorbing. Convolutions and head are shared. Each modality has its own
    loss; the learned ensemble weights are trained by the ensemble's loss alone, on detached outputs.

    A row never receives channels of a modality it lacks: with no other modality present, it keeps its own. Absent
    images do not enter the batch statistics.

    `exchange = "none"` and `"random"` are the fair twins: the same network, losses and rates. "random" swaps a fixed
    draw of channels of each modality's group instead of those that died.

    Source: Wang et al., 2020.

    **Differs from the paper**: the network is the benchmark's small one, trained in hundreds of steps, so the norms
    learn at `norm_rate` times the recipe's rate and the L1 weight is ten times the largest of the paper; the L1 term
    is added once, not once per output (an error of the reference code).

    Args:
        exchange: "learned" by the scales, "none", or "random".
        threshold: Below it a scale is dead.
        penalty: Weight of the L1 term.
        share: Of a group's channels that "random" exchanges.
        norm_rate: Multiple of the recipe's learning rate for the norms: from 1 to below the threshold within a few
            hundred steps is farther than Adam's own rate goes.
    """

    family = "exchange"
    search: ClassVar[Mapping[str, Space]] = {"penalty": LogUniform(1e-4, 0.1), "norm_rate": LogUniform(1.0, 100.0)}
    separable = False
    checked = ({}, {"exchange": "none"}, {"exchange": "random"})

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        exchange: Literal["learned", "none", "random"] = "learned",
        threshold: NonNegative = 2e-2,
        penalty: NonNegative = 1e-2,
        share: Fraction = 0.5,
        norm_rate: Positive = 10.0,
    ) -> None:
        network = SharedConvolutions(task, recipe.width, exchange, threshold, share)
        super().__init__(task, recipe, fused_dim=recipe.width, encoders=network)
        self.penalty, self.norm_rate = penalty, norm_rate
        self.alpha = nn.Parameter(torch.zeros(len(task.modalities)))

    @property
    def network(self) -> "SharedConvolutions":
        """The encoders, which are one network."""
        assert isinstance(self.encoders, SharedConvolutions)
        return self.encoders

    def encode(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        return self.network(inputs, present)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        return gates(self.alpha.expand(len(z), -1), "softmax", present, dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        # The head is shared and linear, and the weights sum to 1: head(sum_m w_m z_m) = sum_m w_m head(z_m).
        return weighted_sum(z, self.weights(z, present))

    def losses(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """One loss per modality over the rows that have it, the ensemble's, and the L1 term."""
        decisions = self.predict(out.z)
        terms = losses_of_each(self.task, decisions, batch)
        ensemble = weighted_sum(decisions.detach(), self.weights(out.z, batch.present))
        terms["ensemble"] = self.task.goal.loss(ensemble, batch.target)
        terms["sparsity"] = self.penalty * torch.stack([exchange_penalty(g) for g in self.network.gammas()]).sum()
        return terms

    def stages(self) -> tuple[Stage, ...]:
        return (Stage(self, loss="terms", terms=(self.losses,), rates=((self.network.norms, self.norm_rate),)),)

    def diagnose(self, out: Output, present: Tensor) -> dict[str, Tensor]:
        found = {}
        for layer, dead in enumerate(self.network.dead()):
            found[f"exchanged_{layer}"] = dead.float().mean()
            # Dead in two modalities: they swap small signals. The disjoint groups should make this rare.
            found[f"dead_twice_{layer}"] = (dead.sum(dim=0) > 1).float().mean()
        return found

    def progress(self) -> dict[str, float]:
        return {f"exchanged_{layer}": float(dead.float().mean()) for layer, dead in enumerate(self.network.dead())}

    @classmethod
    def applies_to(cls, task: Task, options: Mapping[str, Any]) -> str | None:
        for m in task.modalities:
            if m.kind != "image":
                return f"exchanges channels of images, and `{m.name}` is a {m.kind}"
        shapes = {m.name: m.shape for m in task.modalities}
        if len(set(shapes.values())) > 1:
            listed = ", ".join(f"`{name}` {shape}" for name, shape in shapes.items())
            return f"shares convolutions between images of one shape, and these differ: {listed}"
        return super().applies_to(task, options)


class SharedConvolutions(nn.Module):
    """The benchmark's image encoder once for all modalities, with a private norm and exchange after each convolution.

    The last convolution is not followed by a ReLU, as in that encoder.
    """

    def __init__(
        self, task: Task, width: int, exchange: Literal["learned", "none", "random"], threshold: float, share: float
    ) -> None:
        super().__init__()
        self.names = task.names
        self.exchange = exchange
        self.threshold = threshold if exchange == "learned" else 0.0
        layers = Conv2d(task.modalities[0], width).layers
        self.convolutions = nn.ModuleList(layer for layer in layers if isinstance(layer, nn.Conv2d))
        channels = [layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d)]
        self.norms = nn.ModuleList(PrivateNorm(len(self.names), c) for c in channels)
        for i, c in enumerate(channels):
            drawn = draw(len(self.names), c, share)  # by all twins, so that the head starts from the same weights
            if exchange == "random":
                self.register_buffer(f"drawn_{i}", drawn)

    def gammas(self) -> list[Tensor]:
        """The scales: one [M, C] per layer."""
        return [norm.gamma for norm in self.norms if isinstance(norm, PrivateNorm)]

    def dead(self) -> list[Tensor]:
        """Which channels are exchanged: one [M, C] bool per layer."""
        if self.exchange == "random":
            return [self.get_buffer(f"drawn_{i}") for i in range(len(self.norms))]
        return [exchanged(gamma, self.threshold) for gamma in self.gammas()]

    def forward(self, inputs: dict[str, Tensor], present: Tensor) -> dict[str, Tokens]:
        """Tokens of all modalities."""
        x = torch.stack([inputs[name] for name in self.names])
        there, last = present.T, len(self.norms) - 1
        for i, (convolution, norm, dead) in enumerate(zip(self.convolutions, self.norms, self.dead(), strict=True)):
            x = norm(convolution(x.flatten(0, 1)).unflatten(0, x.shape[:2]), there)
            x = x if self.exchange == "none" else swap(x, dead, there)
            x = x if i == last else F.relu(x)
        grid = (x.shape[3], x.shape[4])
        return {name: Tokens(z.flatten(2).mT, grid) for name, z in zip(self.names, x, strict=True)}


def draw(modalities: int, channels: int, share: float) -> Tensor:
    """`[M, C]` bool: about `share` of each modality's group of channels, the groups of the L1 term."""
    own = channel_groups(modalities, channels)
    # Rank within the group by a random key: an exact number, not a coin per channel.
    key = torch.rand(modalities, channels).masked_fill(~own, torch.inf)
    rank = key.argsort(dim=1).argsort(dim=1)
    return own & (rank < (share * own.sum(dim=1, keepdim=True)).round())
