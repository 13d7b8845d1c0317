"""One corridor, no going back: packages import in one direction, and files are where their names say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import benchmark
from benchmark.cli import commands
from datamodules.registry import datasets
from methods.registry import methods

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("benchmark", "datamodules", "methods", "leaderboard")
ALLOWED = {
    "datamodules": set(),
    "methods": {"datamodules"},
    "leaderboard": set(),
    "benchmark": {"datamodules", "methods", "leaderboard"},
}


def modules(path: Path) -> set[str]:
    """Modules a file imports, anywhere in it; and names from them, which may be modules too."""
    seen = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            seen |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            seen |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return seen


def imports(path: Path) -> set[str]:
    """Top-level packages a file imports."""
    return {module.partition(".")[0] for module in modules(path)}


def files(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py"))
    assert len(found) >= 3, f"discovery of {package} is broken"
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows(package: str) -> None:
    for path in files(package):
        forbidden = (imports(path) & set(PACKAGES)) - ALLOWED[package] - {package}
        assert not forbidden, f"{path.relative_to(ROOT)} imports {forbidden}"


def test_leaderboard_has_no_torch() -> None:
    for path in files("leaderboard"):
        assert not imports(path) & {"torch", "lightning", "torchmetrics"}, path


def test_no_drawers() -> None:
    names = {path.stem for package in PACKAGES for path in files(package)}
    assert not names & {"utils", "common", "helpers", "misc"}


# The files of the contract; everything else in these folders is a method or a dataset, registered under its stem.
CONTRACT = {
    "methods": {"__init__", "base", "metrics", "registry", "stage", "wrapper"},
    "datamodules": {"__init__", "base", "options", "registry", "spec"},
}
SEVERAL = {"interactions"}  # seven tasks of one construction, in one file


@pytest.mark.parametrize("package", CONTRACT)
def test_a_file_is_what_its_folder_says(package: str) -> None:
    registry = {"methods": methods, "datamodules": datasets}[package]
    stems = {path.stem for path in (ROOT / package).glob("*.py")}
    assert stems - CONTRACT[package] - SEVERAL <= set(registry.names())
    own = {entry.name for entry in registry.entries() if entry.origin.partition(".")[0] == package}
    assert {name for name in own if not name.startswith("interactions_")} <= stems


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
# (station, its caller), the rows of the tables in CONTRIBUTING.md; the doors have no caller.
WALK = re.findall(r"^\| `([\w/]+\.py)` \| .* \| (?:`([\w/]+\.py)`|the shell|a notebook) \|$", CONTRIBUTING, re.M)


def test_the_walk_begins_at_the_shell_and_ends_at_the_page() -> None:
    stations = [station for station, _ in WALK]
    assert stations[0] == "benchmark/cli.py" and "benchmark/runner.py" in stations
    assert {"leaderboard/store.py", "leaderboard/tables.py", "leaderboard/page/__init__.py"} <= set(stations)
    assert len(set(stations)) == len(stations)
    rows = re.findall(r"^\| `[\w/]+\.py` \|", CONTRIBUTING, re.M)
    assert len(rows) == len(WALK), "a row of the walk that no test follows"


@pytest.mark.parametrize(("station", "caller"), WALK)
def test_every_station_of_the_walk_is_reached_from_the_one_before(station: str, caller: str) -> None:
    assert (ROOT / station).is_file()
    if not caller:
        assert station in ("benchmark/cli.py", "benchmark/api.py")
        assert 'polymodal = "benchmark.cli:main"' in (ROOT / "pyproject.toml").read_text()
        assert benchmark.run.__module__ == "benchmark.api"
    elif caller == "benchmark/cli.py":  # commands are found by their folder
        assert ROOT / station in [Path(str(command.__file__)) for command in commands().values()]
    else:
        name = station.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert name in modules(ROOT / caller), f"{caller} does not import {name}"
    before = [first for first, _ in WALK]
    assert not caller or before.index(caller) < before.index(station), "a station comes after its caller"


def test_every_room_is_in_the_table() -> None:
    rooms = re.findall(r"^\| `(\w+/\w+)/` \|", CONTRIBUTING, re.M)
    folders = [path for package in PACKAGES for path in (ROOT / package).iterdir() if path.is_dir()]
    there = {path.relative_to(ROOT).as_posix() for path in folders if path.name != "__pycache__"}
    assert set(rooms) == there and len(set(rooms)) == len(rooms)


def test_no_file_cites_what_does_not_ship() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    for path in [*(path for package in PACKAGES for path in files(package)), *tests]:
        cited = re.search(r"\bspec(/| \d|, section)|erratum E\d|design\.md|findings\.md", path.read_text())
        assert not cited, f"{path.relative_to(ROOT)}: {cited}"


def test_packages_are_typed() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()


def test_processes_that_read_predictions_import_no_scipy() -> None:
    code = "import sys, leaderboard.outcomes; print(*{'scipy', 'pandas', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert not done.stdout.split()


@pytest.mark.parametrize("command", [["--help"], ["list", "methods"], ["list", "datasets"], ["list", "corruptions"]])
def test_listing_does_not_import_torch(command: list[str]) -> None:
    code = (
        "import sys; from benchmark.cli import main\n"
        f"try: main({command!r})\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'lightning', 'sklearn', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_an_intruding_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "__init__.py").write_text("")
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import benchmark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert str(tmp_path / "methods") in done.stderr and "intruder" in done.stderr
