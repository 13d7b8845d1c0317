"""The centre regulariser against the width of the embedding."""

from typing import Any

from benchmark.judging import Claim, Difference, above, claim, within

NARROW, WIDE = 8, 64


@claim("centers_help_narrow_embeddings")
def centers_help_narrow_embeddings() -> Claim:
    """Spreading the centres raises recall where classes outnumber dimensions, and changes nothing where they do not."""
    return Claim(
        source="Skewed-mean centre regularisers: Fig. 2 (embedding dimension)",
        entries=tuple(_entry(width, r) for width in (NARROW, WIDE) for r in ("r1", "none")),
        datasets=("two_digits",),
        matrix="centers_embedding",
        rules=(
            above(f"Recall@1 at width {NARROW}, with R1 less without", _gain(NARROW)),
            within(f"Recall@1 at width {WIDE}, with R1 less without", _gain(WIDE), 0.03),
        ),
        caveat="40 training classes are a simplex from width 39 on. two_digits instead of the source's photographs.",
    )


def _entry(width: int, regularizer: str) -> dict[str, Any]:
    own = {"embedding": width, "rate": 10, "loss": "proxy_anchor", "regularizer": regularizer, "weight": 10}
    return {"name": "skewed_mean", "base": "concat", **own}


def _gain(width: int) -> Difference:
    shared = f"weight=10.0,loss=proxy_anchor,embedding={width},rate=10.0"
    return Difference(f"skewed_mean[{shared}]", f"skewed_mean[regularizer=none,{shared}]")
