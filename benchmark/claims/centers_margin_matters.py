"""The centre regulariser against its margin."""

from typing import Any

from benchmark.judging import Claim, Difference, above, claim

ACTIVE, IDLE = -0.25, 0.5


@claim("centers_margin_matters")
def centers_margin_matters() -> Claim:
    """A margin that goes on pushing distant centres apart gives better recall than one that leaves most alone."""
    return Claim(
        source="Skewed-mean centre regularisers: Fig. 3 (margin r)",
        entries=tuple(_entry(delta) for delta in (ACTIVE, IDLE)),
        datasets=("two_digits",),
        matrix="centers_margin",
        rules=(
            above(
                f"Recall@1 with a margin of {ACTIVE} less with {IDLE}",
                Difference(_label(ACTIVE), _label(IDLE)),
            ),
        ),
        caveat="The source never defines its r, and its delta has no gradient as printed; here it is the cosine below "
        "which two centres are left alone.",
    )


def _entry(delta: float) -> dict[str, Any]:
    margin = {"name": "r1", "form": "softplus", "delta": delta}
    return {"name": "skewed_mean", "base": "concat", "embedding": 16, "rate": 10, "weight": 10, "regularizer": margin}


def _label(delta: float) -> str:
    return f"skewed_mean[regularizer=r1:form=softplus;delta={delta},weight=10.0,embedding=16,rate=10.0]"
