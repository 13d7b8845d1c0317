"""A class told by its name: images of classes that training has never seen are ranked against texts."""

import torch
import torch.nn.functional as F
from torch import Tensor

from datamodules.targets import Computed, register_target
from datamodules.targets.ranking import Ranked, first_positive_rank


@register_target("zero_shot")
class ZeroShot(Ranked):
    """A class: `[N]`; the first modality of a row asks which name, told in the last modality, is its class's.

    The rows of the test split's `gallery` are prompts ("a photo of a {name}") and have the last modality alone; the
    code of a class is the normalised mean of its normalised prompts (Radford et al., 2021). Recall at 1 is
    the zero-shot accuracy. A split without a gallery, as validation, has the texts of its own rows for prompts.

    Rows are pairs and not labelled: what may be learnt is which image has which text.
    """

    ks = (1, 5)
    labelled = False
    one_class = True

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        raise ValueError(
            f"task {self.task.name!r} has target {self.task.target!r}: its classes are unknown in training"
        )

    def prediction(self, out: Computed) -> Tensor:
        return F.normalize(out.z.float(), dim=-1)

    def kept(self, predicted: Tensor, target: Tensor, gallery: Tensor | None = None) -> Tensor:
        asks = torch.ones_like(target, dtype=torch.bool) if gallery is None else ~gallery.to(target.device)
        names = asks if gallery is None else ~asks
        classes, position = target[names].unique(return_inverse=True)
        # A sum: `first_positive_rank` normalises, and a direction is all that is asked for.
        codes = predicted.new_zeros(len(classes), predicted.shape[-1]).index_add(0, position, predicted[names, -1])
        rank = torch.full_like(target, -1)
        rank[asks] = first_positive_rank(predicted[asks, 0], codes, target[asks], classes, exclude_self=False)
        return torch.where(rank < 0, rank, rank + 1)

    def trivial(self, train: Tensor, test: Tensor, gallery: Tensor | None = None) -> float:
        return 1 / len((test if gallery is None else test[gallery]).unique())
