"""docs/guides/add_a_method.md tells the truth: its method passes, its tables have every field, its commands parse."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

from benchmark.cli import parser
from benchmark.conformance import check_method
from datamodules.registry import load_plugin
from methods import Output, Stage

GUIDE = (Path(__file__).resolve().parent.parent / "docs" / "guides" / "add_a_method.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, flags=re.S)
METHOD, STAGES = (block for kind, block in BLOCKS if kind == "python")


def test_the_method_passes_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "confident_mean.py").write_text(METHOD)
    load_plugin(tmp_path / "confident_mean.py")
    results = check_method("confident_mean", ("vectors", "three", "image_text"))
    assert not [str(result) for result in results if not result.passed or result.detail]


def test_the_stages_fit(tmp_path: Path) -> None:
    contrast = "def contrast(self, out, batch):\n    return {'contrast': out.z.square().mean()}\n"
    body = "".join(f"    {line}\n" for line in (STAGES + contrast).splitlines())
    staged = METHOD.replace("import Method, ", "import Method, Stage, ").replace("confident_mean", "staged")
    (tmp_path / "staged.py").write_text(staged + "\n" + body)
    load_plugin(tmp_path / "staged.py")
    assert not [str(result) for result in check_method("staged", ("vectors",)) if not result.passed]


def test_the_tables_have_every_field() -> None:
    for title, names in (("Output", Output._fields), ("Stage", [field.name for field in fields(Stage)])):
        section = GUIDE.split(f"## {title}")[1].split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)`", section, flags=re.M) == list(names)


def test_the_commands_parse() -> None:
    lines = [line.split(" #")[0] for kind, block in BLOCKS if kind == "sh" for line in block.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("polymodal ")]
    assert len(commands) >= 8
    for command in commands:
        parser().parse_args(command)
