"""The colour of a family of methods: the same in every chart, on the page, and on every board."""

FAMILIES = {
    "baseline": "#5b6470",
    "fusion": "#1f5fd0",
    "attention": "#d1530f",
    "coordination": "#0f8a5f",
    "fission": "#a13ea8",
    "exchange": "#0b8fa6",
    "augmented": "#b8860b",
    "balance": "#c2304f",
    "confidence": "#5d6b2f",
    "centres": "#7a4a21",
    "energy": "#3f3fa8",
}
"""`page.css` has them as `--f0`, `--f1`, ..., and others for dark paper."""

OTHER = "#8a8f98"
"""Of a family that is not ours."""
