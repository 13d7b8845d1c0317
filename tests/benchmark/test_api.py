"""The commands as functions: a notebook gets what the command line gives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from benchmark import board, plan, run, tune
from benchmark.errors import UsageError
from leaderboard import Board, load
from methods import Method
from methods.registry import methods

ROOT = Path(__file__).resolve().parents[2]
SMALL: dict[str, Any] = {
    "datasets": [{"name": "interactions_xor", "rows": 300}],
    "recipe": {"width": 8, "epochs": 1, "batch_size": 100},
    "conditions": ["gaussian_noise", "joint", "missing"],
}


class SumOfBoth(Method):
    """A class that nobody has registered, as it is typed into a notebook."""

    def __init__(self, task: Any, recipe: Any) -> None:
        super().__init__(task, recipe, fused_dim=recipe.width)

    def fuse(self, z: Tensor, present: Tensor) -> Tensor:
        return z.sum(dim=1)


@pytest.fixture(autouse=True)
def registered_for_a_test() -> Any:
    yield
    methods._loaded.pop("sum_of_both", None)


def test_a_notebook_of_five_lines_gets_a_board(tmp_path: Path) -> None:
    results = run(methods=["concat", SumOfBoth], seeds=2, results=tmp_path, quiet=True, **SMALL)
    frame = results.frame()
    assert set(frame["method"]) == {"concat", "sum_of_both", "unimodal[a]", "unimodal[b]"}
    assert len(frame) == frame["cell"].nunique() * frame["condition"].nunique() == 8 * (1 + 10 + 5 + 2)
    assert frame["score"].between(0, 1).all()
    made = results.board()
    assert isinstance(made, Board) and {row.label for row in made.rows} >= {"concat", "sum_of_both"}
    html = made._repr_html_()
    assert html.startswith("<div>") and "sum_of_both" in html and "<script" not in html
    assert "sum_of_both" in str(made)
    assert {"sum_of_both", "concat"} <= set(made.frame()["method"])
    assert {"clean", "drop"} <= set(made.frame()["measure"])
    assert len(made.plot_robustness().axes) == 2
    found = results.compare("sum_of_both", "concat")
    assert found.frame()["difference"].notna().all() and "<table" in found._repr_html_()
    # What is done is not done again, and what else is in the folder does not mix.
    again = run(methods=["concat"], baselines=False, seeds=1, results=tmp_path, quiet=True, **SMALL)
    assert set(again.frame()["seed"]) == {0} and set(again.frame()["method"]) == {"concat"}
    assert board(tmp_path).control == "concat" and load(tmp_path).frame().equals(frame)


def test_what_was_typed_in_is_told_apart(tmp_path: Path) -> None:
    """Two classes of one name without a file are two methods: their code is in their identity."""
    made = []
    for scale in ("1.0", "2.0"):
        names: dict[str, Any] = {"Method": Method, "__name__": "__console__"}
        exec(textwrap.dedent(f"""
            class SumOfBoth(Method):
                def __init__(self, task, recipe):
                    super().__init__(task, recipe, fused_dim=recipe.width)

                def fuse(self, z, present):
                    return {scale} * z.sum(dim=1)
        """), names)  # fmt: skip
        made.append(plan(methods=[names["SumOfBoth"]], baselines=False, **SMALL).cells[0])
        methods._loaded.pop("sum_of_both")
    assert made[0].source != made[1].source


def test_a_class_of_a_file_reaches_the_workers_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmark.api import _arguments

    (tmp_path / "my_methods.py").write_text(
        "from methods import Method, register\n\n\n@register('filed')\nclass Filed(Method):\n"
        "    def __init__(self, task, recipe):\n        super().__init__(task, recipe, fused_dim=recipe.width)\n\n"
        "    def fuse(self, z, present):\n        return z.sum(dim=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from my_methods import Filed  # pyright: ignore[reportMissingImports]

    nothing = (None, None, None, None, (), True, None)
    found = _arguments("run", None, [Filed], *nothing, workers=2)
    assert found.methods == ["filed"] and found.plugin == [str(tmp_path / "my_methods.py")] and found.workers == 2
    assert _arguments("run", None, [SumOfBoth], *nothing, workers=2).workers == 0
    cells = plan(methods=[Filed], baselines=False, **SMALL).cells
    assert cells[0].method == "filed"
    methods._loaded.pop("filed")
    del sys.modules["my_methods"]


def test_tuning(tmp_path: Path) -> None:
    more = {k: v for k, v in SMALL.items() if k != "conditions"}
    tuned = tune(methods=["concat"], baselines=False, trials=2, results=tmp_path, workers=0, quiet=True, **more)
    assert len(tuned.choice) == 1 and len(tuned.choice[0].scores) == 2
    results = run(
        methods=["concat"], baselines=False, seeds=1, results=tmp_path, workers=0, quiet=True,
        tuned=tmp_path / "tuned.toml", **SMALL,
    )  # fmt: skip
    assert set(results.frame()["setting"]) == {"tuned"}


def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Did you mean 'concat'"):
        run(methods=["concta"], results=tmp_path, **SMALL)
    with pytest.raises(TypeError, match="run\\(\\) has no argument 'worker'"):
        run(methods=["concat"], results=tmp_path, worker=2, **SMALL)
    with pytest.raises(TypeError, match="subclass of `Method` or `DataModule`"):
        plan(methods=[int])


def test_an_option_may_be_a_table_of_lists(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 7},{i % 5},{40 + i % 9},{i % 2}" for i in range(60))
    (tmp_path / "été.csv").write_text(f"hb,crp,age,outcome\n{rows}\n")
    modalities = {"blood": ["hb", "crp"], "person": ("age",)}
    table = {"name": "csv_views", "file": "été.csv", "modalities": modalities, "target": "outcome"}
    cells = plan(methods=["concat"], datasets=[table], seeds=1, conditions="none", data=tmp_path).cells
    (cell,) = [cell for cell in cells if cell.method == "concat"]
    assert cell.dataset_options["modalities"] == {"blood": ["hb", "crp"], "person": ["age"]}


def test_importing_is_cheap() -> None:
    code = (
        "import sys; import benchmark; from benchmark import run, plan, tune, board; from leaderboard import load\n"
        "import benchmark.matrix\n"
        "sys.exit('torch is imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_functions_keep_their_names() -> None:
    import benchmark
    import benchmark.plan
    import benchmark.tune

    assert benchmark.plan is plan and benchmark.tune is tune
