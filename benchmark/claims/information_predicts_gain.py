"""What information theory says of a task, and what fusing gains there."""

from benchmark.judging import Claim, Difference, Tracking, above, claim

KINDS = ("equivalence", "enhancement", "independence", "xor", "mux", "parity3")
ROWS = 8000


@claim("information_predicts_gain")
def information_predicts_gain() -> Claim:
    """The information that no single modality has, unique to others or synergistic, predicts the gain of fusing."""
    known = tuple((f"interactions_{kind}", _beyond_one(f"interactions_{kind}")) for kind in KINDS)
    return Claim(
        source="Lecture on multimodal representation: redundant, unique and synergistic information",
        entries=("concat", {"name": "unimodal", "modality": "a"}),
        datasets=tuple({"name": f"interactions_{kind}", "rows": ROWS} for kind in KINDS),
        rules=(
            above(
                "rank correlation, over tasks, of I(Y; all) - I(Y; a) with the gain of concat over modality a",
                Tracking(known, Difference("concat", "unimodal[a]")),
            ),
        ),
        caveat="Six generated tasks, whose information is computed from their definition; a is their best modality.",
    )


def _beyond_one(dataset: str) -> float:
    """I(Y; all) - I(Y; a), in bits, from the exact distribution."""
    from benchmark.studies._interaction_truth import exact_joint
    from datamodules import datasets
    from methods.functional.information import entropies

    data = datasets.get(dataset)()
    names = tuple(m.name for m in data.task.modalities)
    both = [exact_joint(data, chosen) for chosen in (names, names[:1])]
    whole, single = (float(entropies(joint.flatten(0, -2))["MI"]) for joint in both if joint is not None)
    return whole - single
