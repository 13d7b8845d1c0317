"""Gated fusion: a sum of the modalities with weights computed from them."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from datamodules.spec import Batch, Task
from methods import Method, Output, Recipe, Stage, register
from methods.functional.fusion import gated, gates, weighted_sum
from methods.parts.search import OneOf, Space


@register("gated")
class Gated(Method):
    """Weigh each modality by a gate that looks at the encodings.

    Gates start neutral: 1/M each with `normalisation = "softmax"`, 1/2 with "sigmoid". An absent modality has weight 0;
    a softmax shares its weight among the others.

    With two modalities a softmax of linear gates depends on one linear function of all encodings, the difference of the
    two logits, whatever each gate sees: `sees` makes no difference, and one weight per modality cannot take part in an
    interaction (on xor it gets three of four corners). Independent gates multiply an encoding by a function of another.
    Validation accuracy (2 seeds, scalar gates that see all): xor softmax .694, sigmoid .877, its optimum is .875;
    digit_halves .948 and .973. A gate that sees its own modality alone stays at chance on xor (.513).

    `attention = "hard"` picks one modality, the argmax. It is trained on the exact expected loss
    `sum_m softmax(l)_m loss(head(z_m))`, which has no variance and costs one head per modality.

    Source: Arevalo et al., 2017 (gated multimodal units).

    Args:
        granularity: "scalar": one weight per modality. "vector": one per feature.
        sees: What the gate of a modality looks at: itself ("target"), the others ("other") or "all".
        normalisation: Independent "sigmoid" gates, or "softmax" over modalities. Hard attention has no use for it.
        attention: "soft" or "hard". Hard attention needs scalar gates.
    """

    family = "fusion"
    search: ClassVar[Mapping[str, Space]] = {
        "granularity": OneOf(("scalar", "vector")),
        "normalisation": OneOf(("softmax", "sigmoid")),
    }
    checked = (
        {},
        {"normalisation": "softmax"},
        {"granularity": "vector", "sees": "other"},
        {"attention": "hard", "sees": "target"},
    )

    def __init__(
        self,
        task: Task,
        recipe: Recipe,
        *,
        granularity: Literal["scalar", "vector"] = "scalar",
        sees: Literal["target", "other", "all"] = "all",
        normalisation: Literal["softmax", "sigmoid"] = "sigmoid",
        attention: Literal["soft", "hard"] = "soft",
    ) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)
        if attention == "hard" and granularity != "scalar":
            raise ValueError("gated: `attention` 'hard' needs `granularity` 'scalar'")
        self.granularity = granularity
        self.normalisation: Literal["softmax", "sigmoid"] = normalisation
        self.attention = attention
        modalities = range(len(task.modalities))
        self.seen = [[j for j in modalities if sees == "all" or (j == m) == (sees == "target")] for m in modalities]
        outputs = 1 if granularity == "scalar" else recipe.width
        self.gates = nn.ModuleList(_neutral(nn.Linear(len(seen) * recipe.width, outputs)) for seen in self.seen)

    def gate_logits(self, z: Tensor) -> Tensor:
        """[B, M], or [B, M, D] for vector gates."""
        seen = [torch.cat([z[:, j] for j in inputs], dim=1) for inputs in self.seen]
        logits = [gate(x) for gate, x in zip(self.gates, seen, strict=True)]
        return torch.cat(logits, dim=1) if self.granularity == "scalar" else torch.stack(logits, dim=1)

    def weights(self, z: Tensor, present: Tensor) -> Tensor:
        logits = self.gate_logits(z)
        if self.granularity == "vector":
            return gates(logits, self.normalisation, present.unsqueeze(-1), dim=1).mean(dim=-1)
        return gates(logits, "hard" if self.attention == "hard" else self.normalisation, present, dim=1)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        if self.granularity == "vector":
            return gated(z.unbind(dim=1), self.gate_logits(z), self.normalisation, present)
        return weighted_sum(z, self.weights(z, present))

    def expected_loss(self, out: Output, batch: Batch) -> dict[str, Tensor]:
        """The task loss of every choice, weighted with its probability."""
        probability = gates(self.gate_logits(out.z).float(), "softmax", batch.present, dim=1)
        rows, count, _ = out.z.shape
        logits = self.predict(out.z).flatten(0, 1)
        # One loss per row from the one definition of the task's loss.
        losses = torch.vmap(self.task.goal.loss)(logits, batch.target.repeat_interleave(count, dim=0))
        return {"expected": (probability * losses.view(rows, count)).sum(dim=1).mean()}

    def stages(self) -> tuple[Stage, ...]:
        if self.attention == "hard":
            return (Stage(self, loss="terms", terms=(self.expected_loss,)),)
        return super().stages()


def _neutral(gate: nn.Linear) -> nn.Linear:
    """Logits of zero for every input."""
    nn.init.zeros_(gate.weight)
    nn.init.zeros_(gate.bias)
    return gate
