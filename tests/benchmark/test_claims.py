"""Claims: verdicts follow from intervals, planted effects are found, planted nulls are not, every claim can be run."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark.cli import main
from benchmark.judging import (
    Agreement,
    Behind,
    Claim,
    Contrast,
    Difference,
    Number,
    Share,
    above,
    below,
    claims,
    within,
)
from benchmark.judging.cells import collect, measured, needed, plan_of
from benchmark.judging.claim import Estimator
from benchmark.judging.estimates import Correlation, Proportion
from benchmark.judging.page import Section, earlier, markdown, page, write
from benchmark.judging.readings import audit, log_cost
from benchmark.judging.results import Results
from leaderboard.effect import Effect
from leaderboard.reference import VERDICTS
from leaderboard.store import Store
from tests.leaderboard.conftest import Planted, make_record

MISSION = ("emma_is_robust", "continuous_equals_discrete", "centers_spread_farther", "additive_misses_emergence")


def planted(folder: Path, seeds: int = 5, rows: int = 600, **methods: Planted) -> Results:
    store = Store(folder)
    store.prepare()
    cells = []
    for label, quality in methods.items():
        for dataset in ("digits", "shapes"):
            for seed in range(seeds):
                record, predictions = make_record(label, quality, dataset, seed, rows)
                cells.append(store.write(record, predictions).cell)
    return collect(cells, store)


def claim_of(*rules) -> Claim:
    return Claim("a test", rules, cap=8)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (above, 0.1, 0.2, "supported"),
        (above, -0.2, -0.1, "refuted"),
        (above, -0.1, 0.1, "open"),
        (below, -0.2, -0.1, "supported"),
        (below, 0.1, 0.2, "refuted"),
        (below, -0.1, 0.1, "open"),
    ],
)
def test_the_interval_decides(rule, low: float, high: float, verdict: str) -> None:
    assert rule("x", Difference("a", "b")).verdict(low, high) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.01, 0.01, "supported"),
        (-0.03, 0.01, "open"),
        (0.01, 0.03, "open"),
        (0.03, 0.05, "refuted"),
        (-0.5, -0.1, "refuted"),
    ],
)
def test_equal_for_all_that_matters(low: float, high: float, verdict: str) -> None:
    assert within("x", Difference("a", "b"), 0.02).verdict(low, high) == verdict


def test_a_planted_effect_is_found_and_a_null_is_not(tmp_path: Path) -> None:
    results = planted(tmp_path, good=Planted(0.88), bad=Planted(0.80), twin=Planted(0.80), concat=Planted(0.80))
    effect, null = Difference("good", "bad"), Difference("twin", "bad")
    assert claim_of(above("better", effect)).judge(results).verdict == "supported"
    assert claim_of(below("worse", effect)).judge(results).verdict == "refuted"
    assert claim_of(above("better", null)).judge(results).verdict == "open"
    assert claim_of(within("equal", null, 0.05)).judge(results).verdict == "supported"
    assert claim_of(within("equal", effect, 0.05)).judge(results).verdict == "refuted"


def test_another_threshold_gives_another_verdict(tmp_path: Path) -> None:
    results = planted(tmp_path, good=Planted(0.88), bad=Planted(0.80))
    verdicts = [
        claim_of(above("better", Difference("good", "bad"), t)).judge(results).verdict for t in (0.0, 0.107, 0.3)
    ]
    assert verdicts == ["supported", "open", "refuted"]


def test_all_rules_must_hold_and_one_may_break_it(tmp_path: Path) -> None:
    results = planted(tmp_path, good=Planted(0.88), bad=Planted(0.80))
    holds, broken = above("better", Difference("good", "bad")), above("worse", Difference("bad", "good"))
    missing = above("unknown", Difference("good", "nobody"))
    assert claim_of(holds, broken).judge(results).verdict == "refuted"
    judged = claim_of(holds, missing).judge(results)
    assert judged.verdict == "open" and "nobody" in judged.rules[1].reason
    assert judged.level == pytest.approx(0.975)


def test_robustness_and_missing_modalities_have_their_own_differences(tmp_path: Path) -> None:
    results = planted(tmp_path, tough=Planted(0.8, fragility=0.01), soft=Planted(0.8, fragility=0.08, missing=0.4))
    for pillar in ("drop", "missing"):
        assert claim_of(above("x", Difference("tough", "soft", pillar))).judge(results).verdict == "supported", pillar


def test_numbers_of_records_and_experiments(tmp_path: Path) -> None:
    results = planted(tmp_path, weighs=Planted(0.8, weighs=True), big=Planted(0.8, parameters=400_000))
    assert claim_of(below("audit", Number(audit, "weighs"), -0.5)).judge(results).verdict == "supported"
    fewer = Contrast("weighs", "big", log_cost("parameters"))
    assert fewer(results).value == pytest.approx(-2.0794, abs=1e-3)
    assert claim_of(below("cost", fewer)).judge(results).verdict == "supported"
    assert claim_of(above("audit", Number(audit, "big"))).judge(results).verdict == "open"  # it weighs nothing
    experiment = Results(experiment=[{"x": 0.8}, {"x": 0.9}, {"x": 0.85}])
    assert claim_of(above("x", Number("x"), 0.6)).judge(experiment).verdict == "supported"
    assert claim_of(above("x", Number("x"), 0.85)).judge(experiment).verdict == "open"


def test_a_failed_seed_leaves_the_claim_open(tmp_path: Path) -> None:
    results = planted(tmp_path, good=Planted(0.88), bad=Planted(0.80))
    lost = dataclasses.replace(results, failed={("good", "digits"): "out of memory"})
    judged = claim_of(above("better", Difference("good", "bad"))).judge(lost)
    assert judged.verdict == "open" and "out of memory" in judged.rules[0].reason


def test_shares_and_orders(tmp_path: Path) -> None:
    many = {f"m{i}": Planted(0.6 + 0.04 * i, fragility=0.08 - 0.01 * i) for i in range(6)}
    results = planted(tmp_path, concat=Planted(0.62), **many)
    assert Share("m5")(results) == Proportion(2, 2) and Share("concat")(results) == Proportion(0, 2)
    order = Agreement("clean", "drop")(results)
    assert order.value > 0.9 and order.number == 6
    low, high = Correlation(0.5, 30).interval(0.95)
    assert low == pytest.approx(0.15, abs=0.02) and high == pytest.approx(0.74, abs=0.02)
    assert Correlation(1.0, 3).interval(0.95) == (-1.0, 1.0)


def test_methods_behind_the_other_modality(tmp_path: Path) -> None:
    unimodal = {f"unimodal[{m}]": Planted(0.7, options={"modality": m}, family="baseline") for m in ("image", "audio")}
    results = planted(tmp_path, tough=Planted(0.9, fragility=0.01), soft=Planted(0.8, fragility=0.07), **unimodal)
    assert Behind(severity=5)(results) == Proportion(1, 2)
    assert Behind(severity=1)(results) == Proportion(0, 2)


def test_more_seeds_find_less_and_the_cap_is_said(tmp_path: Path) -> None:
    noisy = Planted(0.8, spread=0.03)
    results = planted(tmp_path, a=noisy, b=noisy)
    rule = above("x", Difference("a", "b"), size=0.06)
    sizes = [rule.estimate.detectable(results, n, 0.05) for n in (5, 8, 20)]
    assert None not in sizes and sizes[0] > sizes[1] > sizes[2] > 0
    possible = needed(claim_of(dataclasses.replace(rule, size=sizes[1] + 1e-9)), results)
    assert possible.seeds == 8
    hopeless = needed(claim_of(dataclasses.replace(rule, size=1e-4)), results)
    assert hopeless.seeds == 8 and "even 8 seeds" in hopeless.reasons[0]
    assert "not by seeds" in needed(claim_of(above("x", Share("a"))), results).reasons[0]


@pytest.mark.parametrize("estimate", [Difference("a", "b"), Contrast("a", "b", audit), Number(audit, "a")])
def test_before_anything_is_run_nothing_is_known(estimate: Estimator) -> None:
    with pytest.raises(LookupError, match="nothing has been run"):
        estimate.detectable(Results(), 5, 0.05)
    assert claim_of(above("x", estimate)).judge(Results()).verdict == "open"


def test_what_has_not_been_run_leaves_a_claim_open(tmp_path: Path) -> None:
    results = planted(tmp_path, a=Planted(0.9), b=Planted(0.7))
    claim = claim_of(above("x", Difference("a", "b")))
    assert claim.judge(results).verdict == "supported"
    judgement = claim.judge(dataclasses.replace(results, lacking=[("a", "digits"), ("b", "digits")]))
    assert judgement.verdict == "open" and "a on digits" in judgement.rules[0].reason
    store = Store(tmp_path)
    cells = [record.cell for own in results.records.values() for record in own]
    (tmp_path / f"{cells[0].id}.json").unlink()
    assert collect(cells, store).lacking == [(cells[0].label, cells[0].dataset)]


def labels(estimate: Estimator) -> Iterator[str]:
    for field in dataclasses.fields(estimate):  # pyright: ignore[reportArgumentType]
        value = getattr(estimate, field.name)
        if field.name in ("a", "b", "label", "control") and value:
            yield value


@pytest.mark.parametrize("name", claims.names())
def test_every_claim_can_be_planned(name: str) -> None:
    """What its rules name is what its cells are; a claim about nothing would stay open for ever."""
    claim: Claim = claims.get(name)()  # pyright: ignore[reportAssignmentType]
    assert claim.rules and claim.source and claim.seeds >= 5 and claim.cap >= claim.seeds
    if claim.entries == "all":
        return
    planned = plan_of(name, claim, 1).cells
    have = {cell.label for cell in planned}
    for rule in claim.rules:
        assert set(labels(rule.estimate)) <= have, (rule.what, have)
        assert set(getattr(rule.estimate, "on", ())) <= {cell.dataset for cell in planned}
    assert planned or claim.experiment


def test_the_registry_knows_the_claims() -> None:
    assert set(MISSION) <= set(claims.names())
    assert all(entry.summary.endswith(".") for entry in claims.entries())


PLUGIN = '''
from benchmark.judging import Claim, Number, above, claim

@claim("{name}")
def mine() -> Claim:
    """Numbers grow."""
    return Claim("me", (above("x", Number("x"), {threshold}),), experiment="json.tool:main", seeds=5)
'''


def run_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, threshold: float, values: Sequence[float]
) -> dict:
    plugin = tmp_path / f"{name}.py"
    plugin.write_text(PLUGIN.format(name=name, threshold=threshold))
    monkeypatch.setattr("json.tool.main", lambda seed: {"x": values[seed]}, raising=False)
    arguments = [
        "claims",
        "run",
        name,
        "--plugin",
        str(plugin),
        "--results",
        str(tmp_path),
        "--quiet",
        "--workers",
        "0",
    ]
    assert main(arguments) == 0
    judged = json.loads((tmp_path / "claims" / "page" / "claims.json").read_text())
    return next(one for one in judged if one["claim"] == name)


def test_a_plugin_brings_a_claim_and_its_threshold_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [0.5, 0.6, 0.55, 0.52, 0.58, 0.5, 0.6, 0.55, 0.52, 0.58]
    assert run_claim(tmp_path, monkeypatch, "mine_low", 0.2, values)["verdict"] == "supported"
    assert run_claim(tmp_path, monkeypatch, "mine_high", 0.9, values)["verdict"] == "refuted"
    text = (tmp_path / "claims" / "page" / "claims.md").read_text()
    assert "**refuted**" in text and "claims/mine_high.svg" in text
    assert main(["validate", str(tmp_path / "claims")]) == 0  # what is written is not taken for a record
    assert (tmp_path / "claims" / "page" / "claims" / "mine_high.svg").read_text().startswith("<?xml")


def test_half_files_of_a_killed_writer_are_swept_when_they_are_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".incoming-a.html", tmp_path / ".incoming-b.html"
    for path in (old, new):
        path.write_text("<ht")
    os.utime(old, (0, 0))
    write([], tmp_path)
    assert not old.exists() and new.exists()


def test_an_experiment_is_not_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_claim(tmp_path, monkeypatch, "mine_once", 0.2, [0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6])
    again = run_claim(tmp_path, monkeypatch, "mine_once", 0.2, [9.0] * 10)
    assert again == first
    claim: Claim = claims.get("mine_once")()  # pyright: ignore[reportAssignmentType]
    assert measured("mine_once", claim, 2, tmp_path / "claims") == [{"x": 0.5}, {"x": 0.6}]


def test_an_unknown_claim_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "run", "emma_is_robst"]) == 2
    assert "Did you mean 'emma_is_robust'" in capsys.readouterr().err


def test_the_page_escapes_and_counts(tmp_path: Path) -> None:
    results = planted(tmp_path, good=Planted(0.88), bad=Planted(0.80))
    claim = claim_of(above("<b>x</b>", Difference("good", "bad")))
    section = Section("mine", "It is <i>so</i>.", claim, claim.judge(results), "20 cells")
    assert "1 claims: 1 supported, 0 refuted, 0 open" in markdown([section])
    assert "<b>x" not in page([section]).replace("&lt;b&gt;x", "") and "<svg" in page([section])
    assert isinstance(Difference("good", "bad")(results), Effect)


def test_the_page_of_the_site_has_every_claim_with_its_rules_as_they_are() -> None:
    root = Path(__file__).parents[2]
    known = {e.name: (e.summary, claims.get(e.name)()) for e in claims.entries()}
    published = list(earlier(VERDICTS.parent, known))
    assert [s.name for s in published] == sorted(p.stem for p in (root / "benchmark" / "claims").glob("[a-z]*.py"))
    assert (root / "docs" / "claims.md").read_text(encoding="utf-8") == markdown(published), "claims run --output docs"


def test_a_page_keeps_what_it_says_of_other_claims(tmp_path: Path) -> None:
    results = planted(tmp_path / "cells", good=Planted(0.88), bad=Planted(0.80))
    rule, other = above("good less bad", Difference("good", "bad")), above("more", Difference("good", "bad"), 0.5)
    known = {name: ("It is better.", Claim("here", (r,))) for name, r in (("a", rule), ("b", other))}
    sections = [Section(n, s, c, c.judge(results), "two cells", ("5 seeds",)) for n, (s, c) in known.items()]
    write(sections, tmp_path)
    assert list(earlier(tmp_path, known)) == sections
    assert list(earlier(tmp_path, {**known, "b": ("It is better.", Claim("here", (rule,)))})) == sections[:1], (
        "what was judged by another rule is not kept"
    )
    path = tmp_path / "claims.json"
    path.write_text(path.read_text().replace('"verdict": "refuted"', '"verdict": "supported"'))
    assert list(earlier(tmp_path, known)) == sections, "a verdict follows from its interval, whatever is written"
    path.write_text("[1]")
    with pytest.raises(ValueError, match="no file of `polymodal claims run`"):
        list(earlier(tmp_path, known))


def test_equal_orders_of_few_things_are_not_known_exactly() -> None:
    low, high = Correlation(1.0, 6).interval(0.95)
    assert 0.3 < low < 0.5 < high < 1
    assert Correlation(1.0, 4).interval(0.95)[0] < 0  # 1 in 24 by chance
    assert Correlation(1.0, 40).interval(0.95)[0] > 0.99


def test_the_list_shows_published_verdicts_and_ones_own_before_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = json.loads(VERDICTS.read_text(encoding="utf-8"))[0]["claim"]
    assert main(["claims", "list", name, "--results", str(tmp_path)]) == 0
    assert "(published)" in capsys.readouterr().out
    (tmp_path / "claims" / "page").mkdir(parents=True)
    (tmp_path / "claims" / "page" / "claims.json").write_text(json.dumps([{"claim": name, "verdict": "refuted"}]))
    assert main(["claims", "list", name, "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "refuted" in out and "(published)" not in out


def test_show_has_the_published_evidence_where_the_cells_are_not_at_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = next(one for one in json.loads(VERDICTS.read_text(encoding="utf-8")) if one["claim"] == "emma_is_robust")
    assert main(["claims", "show", "emma_is_robust", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"evidence  {found['evidence']} (published" in out and f"verdict   {found['verdict']}" in out
    assert all(f"{rule['value']:+.4f}" in out for rule in found["rules"])
    assert main(["claims", "show", "emma_is_robust", "--own", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "evidence  none yet" in out and "verdict   open" in out


def test_who_stops_the_first_training_gets_no_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def stopped(name: str, claim: Claim, seeds: int, arguments: Any) -> int:
        asked.append(seeds)
        return 143

    monkeypatch.setattr("benchmark.commands.claims._train", stopped)
    monkeypatch.setattr("benchmark.judging.cells.needed", lambda claim, results: SimpleNamespace(seeds=10, reasons=()))
    assert main(["claims", "run", "emma_is_robust", "--results", str(tmp_path), "--output", str(tmp_path)]) == 143
    assert asked == [5]
