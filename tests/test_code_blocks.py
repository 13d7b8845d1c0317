"""Every block of code of the README and the guides is run, at its real size or a small one, or says why it is not."""

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark.cli import main
from tests.markdown import DOCS, ROOT, Blocks

PAGES = [ROOT / "README.md", *sorted((DOCS / "guides").glob("*.md")), DOCS / "index.md", DOCS / "scale.md"]

GUIDES, EXPORTS = "tests/test_publish_guides.py", "tests/leaderboard/test_export.py"
PROBES = "tests/benchmark/test_study_probes.py"

# A line, or the first line of a block, that no test can run, and what it would take.
NOT_RUN = {
    "make leaderboard": "an installation and minutes: what .ci/run and newcomers do",
    "make test": "the tests themselves",
    "make install": "an installation and a download",
    ". .venv/bin/activate": "an installation",
    "sbatch job.sh": "a Slurm cluster",
    "#!/bin/bash": "a Slurm cluster of eight nodes",
    "ray start": "several machines",
    "polymodal run core --executor ray": "a running Ray cluster",
    "polymodal run vqa2 --devices 4": "four devices, and the photographs of VQA v2",
    "polymodal export leaderboard/reference/reference.parquet my-fusion": "a submission of the reference's size: hours",
    'eval "$(polymodal completion bash)"': "an interactive shell",
    "export POLYMODAL_DATA=~/data": "recordings that their owners publish",
    "polymodal data info utd_mhad": "the same",
    "polymodal data show mosi": "the same",
    "polymodal run real --datasets utd_mhad,mosi": "the same",
}
# Lines, or the first lines of blocks, that a test runs with more care than here.
ELSEWHERE = {
    "polymodal try my_fusion.py": "tests/benchmark/test_author_commands.py::test_try_places_a_method",
    "polymodal try photos/ --target kind": "tests/benchmark/test_stories.py::test_two_hundred_images_with_captions",
    "polymodal python study.py": "tests/benchmark/test_author_commands.py::test_a_script_runs_with_our_packages_first",
    "--with reference": f"{EXPORTS}::test_ones_own_method_meets_the_published",
    "polymodal study probes utd_mhad mosi": f"{PROBES}::test_published_probes_are_those_of_the_files",
    "polymodal submit results": "tests/benchmark/test_submission.py::test_the_commands",
    "polymodal verify my-fusion": "tests/benchmark/test_submission.py::test_the_commands",
    '"""Precision-weighted fusion': "tests/test_readme.py::test_the_plugin_passes_its_check",
    "from methods.functional.fusion import gated": "tests/test_readme.py::test_one_fusion_alone",
    'results = run(methods=["concat", "gated"]': "tests/test_readme.py::test_five_lines_give_a_board",
    "class ConfidentMean(Method)": "tests/test_guide_add_a_method.py::test_the_method_passes_without_a_word",
    "def stages(self)": "tests/test_guide_add_a_method.py::test_the_stages_fit",
    'methods=["concat", "additive"]': f"{GUIDES}::test_the_notebook_of_the_guide_runs",
    "class Average(Method)": f"{GUIDES}::test_the_notebook_of_the_guide_runs",
    "from leaderboard import Board": f"{GUIDES}::test_the_table_of_the_guide_is_a_board",
    "from leaderboard.reference import REFERENCE": f"{GUIDES}::test_the_table_of_the_guide_is_a_board",
    "seeds = 5": "tests/test_guides.py::test_the_matrix_is_planned",
    "absent = {": "tests/test_guides.py::test_incomplete_rows_are_planned",
    "open_clip:": "tests/test_guides.py::test_the_features_are_toml_of_known_names",
}
# What makes a command small, after what the guide says; the last of two values counts.
FAST = ("--set", "recipe.epochs=1", "--set", "recipe.width=8", "--workers", "0", "--quiet")
ONE = ("--methods", "concat", "--datasets", "interactions_xor")
SMALLER = {
    "run": ("--cells", "0:2", "--conditions", "missing", *FAST),
    "tune": (*ONE, "--trials", "1", *FAST),
    "try": ("--seeds", "1", "--workers", "0", "--quiet"),
    "study": ("--seeds", "1"),
}


def skipped(text: str) -> str:
    """Why a line or a block is not run here; empty if it is."""
    text = text.strip()
    reasons = {start: why for start, why in NOT_RUN.items() if text.startswith(start)}
    reasons |= {part: test for part, test in ELSEWHERE.items() if part in text}
    return "; ".join(reasons.values())


def lines_of(block: str) -> Iterator[str]:
    for line in block.replace("\\\n", "").splitlines():
        if command := re.split(r"\s#", line)[0].strip():
            yield command


def arguments_of(line: str) -> list[str]:
    """What the guide says, made small."""
    plain = re.sub(r"\$\w+", "0", re.sub(r"\$\(\(.*?\)\)", "8", line)).replace("/shared/results", "shared")
    told = shlex.split(plain.partition(" > ")[0])[1:]
    more = SMALLER.get(told[0], ())
    if told[0] == "run" and "--tuned" in told:
        more = (*ONE, "--no-baselines", "--cells", "0:1", *FAST)
    if told[0] == "study" and told[1] == "interactions":
        more = ()
    return [*told, *more]


def status_of(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # of a script that `polymodal python` runs
        return int(ended.code or 0)


def shell_pages() -> list[Path]:
    return [
        page
        for page in PAGES
        if any(
            not skipped(line)
            for kind, block in Blocks(page).blocks
            if kind in ("sh", "bash") and not block.startswith("#!")
            for line in lines_of(block)
        )
    ]


def test_every_block_has_a_language_that_says_what_becomes_of_it() -> None:
    for page in PAGES:
        kinds = {kind for kind, _ in Blocks(page).blocks}
        assert kinds <= {"sh", "bash", "python", "toml", "text"}, f"{page}: {kinds}"


def test_nothing_is_excused_that_is_not_there_or_not_tested() -> None:
    every = "\n".join(page.read_text() for page in PAGES)
    for part in (*NOT_RUN, *ELSEWHERE):
        assert part in every, f"no guide has {part!r} any more"
    for test in ELSEWHERE.values():
        file, _, name = test.partition("::")
        found = [node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
        assert name in found, test


def test_every_matrix_and_script_is_run_somewhere() -> None:
    for page in PAGES:
        for kind, block in Blocks(page).blocks:
            if kind in ("toml", "python") and "torch.export.load" not in block:
                assert skipped(block), f"{page}: no test runs\n{block}"


@pytest.fixture(scope="module", name="prepared")
def prepared_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which somebody has worked: results, a table of scores, patients, a plugin."""
    folder = tmp_path_factory.mktemp("guides")
    cells = ["--methods", "concat,late", "--datasets", "interactions_xor,digit_halves", "--seeds", "2"]
    flags = ["--conditions", "missing", *FAST, "--results", str(folder / "results")]
    assert main(["run", *cells, *flags]) == 0
    rng, rows = np.random.default_rng(0), 120
    names = ("blood_hb", "blood_crp", "history_bmi", "history_age")
    frame = pd.DataFrame({name: rng.normal(size=rows) for name in names})
    frame["outcome"] = np.where(frame.blood_hb + frame.history_bmi > 0, "ill", "well")
    frame.to_csv(folder / "patients.csv", index=False)
    frame.drop(columns="outcome").head(7).to_csv(folder / "new_patients.csv", index=False)
    scores = [(m, d, s, 0.8 + 0.01 * s) for m in ("logreg", "concat") for d in ("iris", "wine") for s in range(3)]
    pd.DataFrame(scores, columns=["method", "dataset", "seed", "score"]).to_csv(folder / "scores.csv", index=False)
    (folder / "leaderboard" / "reference").mkdir(parents=True)
    return folder


PRELUDE = """
import torch
blood, history, present = torch.zeros(3, 2), torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool)
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", shell_pages(), ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(prepared, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    shutil.copytree("results", "shared")
    (readme,) = [b for kind, b in Blocks(ROOT / "README.md").blocks if kind == "python" and "@register" in b]
    for name in ("precision_weighted", "mine"):
        Path(f"{name}.py").write_text(readme.replace('"precision_weighted"', f'"{name}"'))
    for kind, block in Blocks(page).blocks:
        if kind == "python" and "torch.export.load" in block:
            exec(PRELUDE + block, {})  # the block is ours
        if kind not in ("sh", "bash") or block.strip().startswith("#!"):
            continue
        for line in lines_of(block):
            if line == "polymodal try my_fusion.py" and Path("my_fusion.py").exists():
                # What follows in the guide reads its results.
                line = "polymodal run --plugin my_fusion.py --methods my_fusion,concat --datasets digit_halves"
            elif skipped(line):
                continue
            assert line.startswith("polymodal "), f"nobody runs {line!r}"
            code = status_of(arguments_of(line))
            said = capsys.readouterr()
            assert code == 0, f"{line}\n{said.out[-1500:]}\n{said.err[-1500:]}"
