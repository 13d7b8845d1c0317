"""Labels of a board: cells of different options are never averaged."""

from benchmark.matrix import parse
from benchmark.plan import make_plan


def labels(*methods: object) -> list[str]:
    given = {"methods": list(methods), "datasets": ["two_digits"], "conditions": "none", "baselines": False, "seeds": 1}
    return [cell.label for cell in make_plan(parse(given, "test")).cells]


def test_options_within_an_option_tell_entries_apart() -> None:
    margins = [{"name": "r1", "form": "softplus", "delta": delta} for delta in (0.0, 0.25)]
    bases = ["concat", {"name": "low_rank", "rank": 4}, {"name": "low_rank", "rank": 16}, "low_rank"]
    found = labels({"name": "skewed_mean", "regularizer": ["r2", *margins], "base": bases})
    assert len(set(found)) == len(found) == 12
    assert "skewed_mean[base=low_rank:rank=4,regularizer=r1:form=softplus;delta=0.25]" in found
    assert "skewed_mean[base=low_rank,regularizer=r2]" in found
