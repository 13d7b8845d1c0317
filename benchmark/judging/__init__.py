"""What turns cells into verdicts on claims: the rule, the estimates it may be about, its power, and the page."""

from benchmark.judging.claim import Claim, Rule, above, below, claim, claims, within
from benchmark.judging.estimates import Agreement, Behind, Contrast, Difference, Number, Share, Tracking

__all__ = [
    "Agreement",
    "Behind",
    "Claim",
    "Contrast",
    "Difference",
    "Number",
    "Rule",
    "Share",
    "Tracking",
    "above",
    "below",
    "claim",
    "claims",
    "within",
]
