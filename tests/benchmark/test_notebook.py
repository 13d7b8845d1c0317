"""`run(...)` in a real kernel: how far it is, is seen below the cell."""

from pathlib import Path

import pytest

from tests.markdown import ROOT

CODE = """
from benchmark import run

run(methods=["concat", "late"], datasets=[{"name": "interactions_xor", "rows": 200}], seeds=1, conditions="none",
    recipe={"epochs": 1, "width": 8}, baselines=False, workers=0)
"""


@pytest.mark.slow
def test_progress_is_shown_below_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    seen: list[str] = []

    class Watched(nbclient.NotebookClient):
        def process_message(self, msg: dict, cell: object, cell_index: int) -> object:  # pyright: ignore
            if msg["msg_type"] in ("display_data", "update_display_data"):
                seen.append(msg["content"]["data"].get("text/plain", ""))
            return super().process_message(msg, cell, cell_index)  # pyright: ignore

    Watched(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    counts = [part for text in seen for part in ("0/2", "1/2", "2/2") if part in text]
    assert list(dict.fromkeys(counts)) == ["0/2", "1/2", "2/2"], seen
    left = [output["data"]["text/plain"] for output in notebook.cells[0].outputs if "data" in output]
    assert sum("2/2" in text for text in left) == 1, "one line, replaced as cells end"
    assert not any("1/2" in text for text in left)
    assert "best" in next(text for text in left if "2/2" in text)
    assert not any("ipywidgets" in text for text in left), "nothing has to be installed for it"
