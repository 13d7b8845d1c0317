"""Modality dropout: the twin in which every corrupted modality goes missing instead."""

from methods import register
from methods.augmented import Augmented


@register("modality_dropout")
class ModalityDropout(Augmented):
    """Train the base, then go on with its decoder while modalities go missing: the rows and modes of `augmented`.

    Source: Neverova et al., 2016.
    """

    family = "augmented"

    drop_only = True
