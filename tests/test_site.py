"""The site: a page for every method and dataset, a strict build, and what a real browser makes of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from datamodules.registry import datasets
from methods.registry import methods
from tests.browser import browser_fixture  # noqa: F401 -- a fixture
from tests.markdown import DOCS, ROOT, make_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module", name="pages")
def pages_fixture() -> dict[str, str]:
    """The pages that are made; those of the datasets that have to be read are left to the build."""
    return make_page("make_methods").pages(make_page("published").published())


def test_every_method_has_a_page_and_is_in_the_table(pages: dict[str, str]) -> None:
    shipped = [entry.name for entry in methods.entries() if entry.origin.startswith("methods.")]
    assert {"concat", "low_rank", "emma"} <= set(shipped)
    for name in shipped:
        page = pages[f"methods/{name}.md"]
        assert re.search(rf"^\| \[`{name}`\]", pages["methods/index.md"], flags=re.M), name
        assert "## Equations" in page, f"{name} needs a section in docs/mathematics: a heading with `{name}` in it"
        assert "## On the published board" in page
        assert re.search(r"\b(19|20)\d\d\b|Source: no single paper", page), f"{name} names no source"
        for option in make_page("make_methods").options_of(methods.get(name)):
            found = re.search(rf"^\| `{option['name']}` \| \*[^*]+\*, default `.*`\. \S", page, flags=re.M)
            assert found, f"{name}: its docstring must say what {option['name']} is"


def test_every_published_method_has_its_row(pages: dict[str, str]) -> None:
    """Those of the augmented track, too, which have a board of their own."""
    for name in {row.method for board in make_page("published").published() for row in board.rows if row.method}:
        page = pages[f"methods/{name}.md"]
        assert "| clean |" in page or "best unimodal" in page, name
        assert re.search(r"^On clean rows, `.*` (wins on|loses on|ties)", page, flags=re.M), name


def test_differences_from_the_paper_are_on_the_page(pages: dict[str, str]) -> None:
    for name in ("emma", "skewed_mean", "evidential"):
        assert "**Differs from the paper**" in pages[f"methods/{name}.md"]


def test_what_a_docstring_says_of_an_option_is_in_its_row(pages: dict[str, str]) -> None:
    assert re.search(r"^\| `granularity` \|.*one of .*one weight per modality", pages["methods/gated.md"], flags=re.M)


def test_a_page_of_a_dataset_says_what_one_must_know() -> None:
    page = make_page("make_datasets").page("digit_halves", ())
    for fact in ("CC BY 4.0", "Alpaydin", "train 1,197", "Floor:", "gaussian_noise", "calibrated on its training rows"):
        assert fact in page, fact
    foreign = make_page("make_datasets").page("vqa2", ())
    assert "From files of yours" in foreign
    for fact in ("`polymodal data show vqa2`", "`polymodal study interactions vqa2 --out docs/interactions`"):
        assert fact in foreign, fact


def test_every_address_is_of_a_dataset_and_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYMODAL_DATA", raising=False)
    pages = make_page("make_datasets")
    named = "utd_mhad mosi mmsa av_mnist mm_imdb hateful_memes food101_titles crema_d nyud2"
    assert set(named.split()) <= pages.ADDRESSES.keys()
    for name, address in pages.ADDRESSES.items():
        page = pages.page(name, None)
        assert f"<{address}>" in page and "| licence |" in page and "| citation |" in page, name
    assert "`probe[text]` 0.701" in pages.page("mosi", None), "scores are shown without the files too"


def test_an_interaction_profile_is_the_file_that_the_study_wrote() -> None:
    pages = make_page("make_datasets")
    stored = sorted(pages.PROFILES.glob("*.json"))
    assert "mosi" in {path.stem for path in stored}
    for path in stored:
        found = json.loads(path.read_text())
        assert found["dataset"] == path.stem and found["version"] == datasets.get(path.stem).version, path
        shown = pages.profile(path.stem, found["version"])
        assert f"| {found['estimate']['S']:.3f} |" in shown and f"`polymodal study interactions {path.stem}" in shown
        assert "measure it again" not in shown
        assert "measure it again" in pages.profile(path.stem, "another")


def test_functions_that_the_mathematics_names_exist() -> None:
    import importlib

    found = 0
    modules = {path.stem for path in (ROOT / "methods" / "functional").glob("[a-z]*.py")}
    for path in (DOCS / "mathematics").glob("*.md"):
        for module, name in re.findall(r"`(\w+)\.(\w+)`", path.read_text()):
            if module in modules:
                functions = importlib.import_module(f"methods.functional.{module}")
                assert hasattr(functions, name), f"{path}: {module}.{name}"
                found += 1
    assert found > 60


def test_comments_cite_no_document_that_is_not_there() -> None:
    for package in ("benchmark", "datamodules", "methods", "leaderboard"):
        for path in (ROOT / package).rglob("*.py"):
            for cited in re.findall(r"docs/[\w/]+\.md", path.read_text()):
                assert (ROOT / cited).exists() or cited.startswith(("docs/methods/", "docs/datasets/")), (
                    f"{path}: {cited}"
                )


# --- Built ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="site")
def site_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole build, in a copy: it writes pages beside the sources."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("benchmark", "datamodules", "methods", "leaderboard", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_MKDOCS_2_WARNING": "1"}
    for command in (["docs/make.py"], ["-m", "mkdocs", "build", "--strict"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_build_is_strict_and_complete(site: Path) -> None:
    for registry, folder in ((methods, "methods"), (datasets, "datasets")):
        shipped = [entry.name for entry in registry.entries() if entry.origin.startswith(("methods.", "datamodules."))]
        assert shipped
        for name in shipped:
            assert (site / folder / f"{name}.html").exists(), name
    assert "benchmark.api.run" in (site / "reference" / "api.html").read_text()


def test_nothing_hides_from_strict() -> None:
    build = re.findall(r"mkdocs build.*", (ROOT / "Makefile").read_text())
    assert build == ["mkdocs build --strict --site-dir site"], "--quiet hides warnings from --strict"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_pages_open_without_a_network(site: Path, browser: "Browser", size: tuple[int, int], scheme: str) -> None:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(m.text))
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else wrong.append(r.url))
    for name in ("index", "methods/continuous_sparsemax", "mathematics/energy", "datasets/digit_halves"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.locator("h1").first.is_visible()
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond <= 0, f"{name} is wider than the screen by {beyond} pixels"
        assert page.locator(".arithmatex").count() == page.locator(".arithmatex:has(.katex)").count(), name
        assert page.locator(".katex-error").count() == 0, name
    assert page.evaluate("document.body.dataset.mdColorScheme") == ("default" if scheme == "light" else "slate")
    assert not wrong
    context.close()


@pytest.mark.slow
def test_search_finds_without_a_network(site: Path, browser: "Browser") -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").click()
    page.keyboard.type("sparsemax", delay=20)  # the page listens to keys
    page.wait_for_selector(".md-search-result__link")
    assert "sparsemax_attention" in page.locator(".md-search-result").inner_text()
    page.close()
