"""The page: what is in the file, and what a real browser makes of it."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from leaderboard.board import build_all
from leaderboard.families import FAMILIES
from leaderboard.merge import gather
from leaderboard.page import page
from methods.registry import methods
from tests.browser import browser_fixture  # noqa: F401 -- a fixture
from tests.leaderboard.conftest import STANDARD, Planted, write_results

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EVIL = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>{{data}}"


@pytest.fixture(scope="module", name="html")
def html_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    methods = {**STANDARD, EVIL: Planted(0.75, 0.03), SCRIPT: Planted(0.6, family="<b>family</b>")}
    store = write_results(folder / "results", methods, seeds=2, rows=120)
    for record in store.scan().records:
        if record.cell.label == "additive" and record.cell.dataset == "shapes":
            store.path(record.cell.id).unlink()
        if record.cell.label == "tensor" and record.cell.dataset == "digits":
            late = tuple(msgspec.structs.replace(stage, best_epoch=9) for stage in record.training)
            store.write(msgspec.structs.replace(record, training=late), store.predictions(record.cell.id))
    path = folder / "leaderboard.html"
    path.write_text(
        page(build_all(gather([store.folder])), {"gated": "Weighs modalities <by> gates."}), encoding="utf-8"
    )
    return path


def test_the_file_is_self_contained_and_every_name_escaped(html: Path) -> None:
    text = html.read_text(encoding="utf-8")
    assert EVIL not in text
    assert "alert(2)</script>" not in text
    assert not re.search(
        r"""(src|href)\s*=\s*["']?(https?:)?//""", re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert policy[1].count("'sha256-") == len(re.findall(r"<script>", text))
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert data is not None
    labels = [r["label"] for r in json.loads(data[1])["boards"][0]["rows"]]
    without_script = re.search(r"<noscript>(.*?)</noscript>", text, re.S)
    assert without_script is not None and "methods are ahead of concat" in without_script[1]
    assert EVIL in labels
    assert SCRIPT in labels


def test_a_family_has_one_colour_everywhere() -> None:
    style = (Path(__file__).parents[2] / "leaderboard" / "page" / "glue" / "page.css").read_text()
    light = style[: style.index("@media")]
    assert {f"--f{i}: {colour}" for i, colour in enumerate(FAMILIES.values())} <= set(
        re.findall(r"--f\d+: #\w+", light)
    )
    ours = {entry.family for entry in methods.entries()}
    assert ours - {""} <= FAMILIES.keys(), "a new family gets a colour"


def test_licences_of_the_bundled_libraries_are_there() -> None:
    vendor = Path(__file__).parents[2] / "leaderboard" / "page" / "vendor"
    scripts = {p.name.split(".")[0] for p in vendor.glob("*.js")}
    assert scripts == {"d3", "plot"}
    listed = (vendor / "README.md").read_text()
    for script in vendor.glob("*.js"):
        assert "copyright" in (vendor / f"{script.name.split('.')[0]}.LICENSE").read_text().lower()
        assert hashlib.sha256(script.read_bytes()).hexdigest() in listed


# --- In a browser -----------------------------------------------------------------------------------------------------


class Visit:
    """A page that remembers everything that must not happen."""

    def __init__(self, browser: "Browser", html: Path, **context: Any) -> None:
        self.html = html
        self.context = browser.new_context(**context)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda m: self.wrong.append(f"console {m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.wrong.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.wrong.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on("request", self._request)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("data:", self.html.as_uri())):
            self.wrong.append(f"request: {request.url}")

    def go(self, fragment: str = "") -> "Page":
        self.page.goto("about:blank")
        self.page.goto(self.html.as_uri() + fragment)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def soon(self, check: Callable[[], object]) -> None:
        """Wait until `check` holds: the page answers an event when it has time to, not within the event."""
        deadline = time.monotonic() + 20
        while not check():
            assert time.monotonic() < deadline, "the page never came to show this"
            self.page.wait_for_timeout(25)

    def names(self) -> list[str]:
        return self.page.locator("table.board tbody .name").all_text_contents()

    def values(self, column: int) -> list[str]:
        return self.page.locator(f"table.board tbody tr > :nth-child({column})").all_text_contents()


@pytest.fixture(name="visit")
def visit_fixture(browser: "Browser", html: Path) -> Iterator[Visit]:
    visit = Visit(browser, html, viewport={"width": 1280, "height": 900})
    yield visit
    visit.context.close()
    assert visit.wrong == []


@pytest.mark.slow
def test_it_loads_and_shows_every_method_and_chart(visit: Visit) -> None:
    page = visit.go()
    names = visit.names()
    assert names[:3] == ["trivial predictor", "best unimodal", "concat"]
    assert names[3] in ("gated", "gated_twin")
    assert EVIL in names
    assert SCRIPT in names
    assert "augmented" not in names
    assert page.locator("#scatter svg circle").count() >= len(names) - 1
    assert page.locator("#curves .panel svg").count() == 4
    assert page.locator("#ranks .panel svg").count() == 3
    assert page.locator("#answer li").count() >= 5
    assert "not resolvable with 3 datasets" in page.locator("#ranktext").inner_text()
    assert page.locator("#audit > svg g[aria-label=dot] path").count() == 2 * 2 * 3
    assert page.locator("#profile td").count() == len(names) - 1, "all that were trained"
    assert page.locator("table.board abbr", has_text="†").count() == 1
    heads = page.locator("table.board thead th", has_text="digits").inner_text()
    assert "accuracy" in heads and "trivial 0.250" in heads
    assert page.locator(".columns dt").count() > 5, "what the columns are, without a mouse to hover"
    assert page.locator("table.board .iv").count() > 20
    assert page.locator("table.board td.best").count() >= 3


@pytest.mark.slow
def test_names_in_the_scatter_cover_neither_each_other_nor_a_dot(browser: "Browser", tmp_path: Path) -> None:
    """A crowd of large dots, and one small dot, which the sizes are relative to."""
    close = {f"method_{i:02}": Planted(0.8 + 0.003 * (i % 8), 0.02 + 0.001 * (i // 8), parameters=10**6)
             for i in range(40)}  # fmt: skip
    methods = {"concat": Planted(0.8, parameters=10), **close}
    store = write_results(tmp_path / "results", methods, ("digits",), seeds=2, rows=500)
    html = tmp_path / "leaderboard.html"
    html.write_text(page(build_all(gather([store.folder]))), encoding="utf-8")
    visit = Visit(browser, html, viewport={"width": 1280, "height": 900})
    boxes = "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])"
    for zoom in ("", "all"):
        view = visit.go(f"#zoom={zoom}")
        names = view.locator("#scatter g[aria-label=text] text").evaluate_all(boxes)
        dots = view.locator("#scatter g[aria-label=dot] circle").evaluate_all(boxes)
        assert len(names) >= 5 and len(dots) >= len(names)
        for i, (left, top, right, bottom) in enumerate(names):
            for x, y, z, w in (*names[:i], *dots):  # to two pixels: letters are smaller than their boxes
                assert not (left < z - 2 and right > x + 2 and top < w - 2 and bottom > y + 2)
    visit.context.close()
    assert visit.wrong == []


@pytest.mark.slow
def test_a_link_to_a_method_of_another_track_opens_it_there(visit: Visit) -> None:
    page = visit.go("#method=augmented")
    visit.soon(lambda: page.locator("#drawer[open]").count())
    assert page.locator("#drawer-title").inner_text() == "augmented"
    assert page.locator("#track button[aria-pressed=true]").inner_text().lower() == "augmented"
    page = visit.go("#track=plain&method=augmented")
    assert not page.locator("#drawer[open]").count(), "the link says which track"


@pytest.mark.slow
def test_a_sentence_of_the_answer_leads_to_where_it_is_seen(visit: Visit) -> None:
    page = visit.go()
    page.locator("#answer .see", has_text="see missing").click()
    visit.soon(lambda: page.locator("#slice button[aria-pressed=true]").inner_text().lower() == "missing")
    assert "slice=missing" in page.url


@pytest.mark.slow
def test_it_sorts_by_click_and_by_keyboard_and_keeps_holes_last(visit: Visit) -> None:
    page = visit.go()
    header = page.locator("table.board thead th", has_text="shapes")
    for direction in ("descending", "ascending"):
        header.get_by_role("button").click()
        visit.soon(lambda direction=direction: header.get_attribute("aria-sort") == direction)
        found = [float(v[:5]) for v in visit.values(4)[3:] if v[0].isdigit()]
        assert len(found) > 4 and found == sorted(found, reverse=direction == "descending")
        assert visit.names()[:3] == ["trivial predictor", "best unimodal", "concat"], "references stay on top"
        assert visit.names()[-1] == "additive", "a hole is last in both directions"
    page.locator("table.board thead th button").first.focus()
    page.keyboard.press("Enter")
    visit.soon(lambda: visit.names()[3:] == sorted(visit.names()[3:]))


@pytest.mark.slow
@pytest.mark.parametrize("wide", [360, 800, 1280, 1900])
def test_the_table_drops_columns_instead_of_scrolling(browser: "Browser", html: Path, wide: int) -> None:
    visit = Visit(browser, html, viewport={"width": wide, "height": 900})
    page = visit.go()
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    holder, table = page.locator("#table").bounding_box(), page.locator("table.board").bounding_box()
    assert holder is not None and table is not None and table["width"] <= holder["width"] + 1
    assert page.locator("table.board thead th").count() >= 2
    if wide == 360:
        assert "Not shown at this width" in page.locator("#under").inner_text()
    visit.context.close()
    assert visit.wrong == []


@pytest.mark.slow
def test_one_dataset_has_ranks_of_its_own_and_says_its_metric(visit: Visit) -> None:
    page = visit.go("#dataset=shapes")
    assert "accuracy" in page.locator("#under").inner_text()
    assert "trivial predictor has 0.250" in page.locator("#under").inner_text()
    assert page.locator("table.board thead").inner_text().lower().count("advantage") == 3
    visit.go("#slice=missing")
    assert "missing" in page.locator("table.board th[aria-sort]").inner_text().lower(), "missing has its own order"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["slice", "dataset", "family", "cost", "sort", "league", "method", "track"])
def test_a_link_to_nothing_shows_the_board(visit: Visit, key: str) -> None:
    for name in ("constructor", "__proto__", "hasOwnProperty"):
        visit.go(f"#{key}={name}")
        assert len(visit.names()) > 5


@pytest.mark.slow
def test_without_javascript_the_answer_and_the_table_are_there(browser: "Browser", html: Path) -> None:
    visit = Visit(browser, html, java_script_enabled=False)
    visit.page.goto(html.as_uri())
    text = visit.page.locator("body").inner_text()
    assert "need JavaScript" in text and "methods are ahead of concat" in text
    assert not visit.page.locator("main").is_visible()
    names = visit.page.locator("noscript tbody th").all_text_contents()
    assert names[:3] == ["trivial predictor", "best unimodal", "concat"] and {EVIL, SCRIPT, "augmented"} <= set(names)
    assert visit.page.locator("noscript thead th").first.is_visible()
    visit.context.close()


@pytest.mark.slow
def test_it_filters_by_track_dataset_family_slice_and_name(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="augmented", exact=True).click()
    visit.soon(lambda: visit.names() == ["trivial predictor", "augmented"])
    page.get_by_role("button", name="plain", exact=True).click()
    visit.soon(lambda: "additive" in visit.names())
    page.get_by_label("Dataset").select_option("shapes")
    visit.soon(lambda: "additive" not in visit.names())
    page.get_by_role("button", name="robust", exact=True).click()
    page.get_by_role("button", name="Show every column").click()
    visit.soon(lambda: "mCE" in page.locator("table.board thead").inner_text())
    page.get_by_label("Family").select_option("<b>family</b>")
    visit.soon(lambda: visit.names() == [SCRIPT])
    page.get_by_label("Family").select_option("")
    page.get_by_label("Find").fill("gated")
    visit.soon(lambda: sorted(visit.names()) == ["gated", "gated_twin"])


@pytest.mark.slow
def test_a_permalink_restores_the_view(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="robust", exact=True).click()
    page.get_by_label("Dataset").select_option("digits")
    page.get_by_role("button", name="Show every column").click()
    page.locator("table.board thead th", has_text="mCE").get_by_role("button").click()
    visit.soon(lambda: page.locator("table.board th[aria-sort]", has_text="mCE").count())
    page.get_by_role("button", name=f"Draw {SCRIPT} in the charts").click()
    visit.soon(lambda: page.locator(".pin[aria-pressed=true]").count() == 6)
    link, rows = page.url, visit.names()
    visit.go("#" + link.split("#")[1])
    assert page.get_by_label("Dataset").input_value() == "digits"
    assert visit.names() == rows
    assert page.locator("table.board th[aria-sort]").inner_text().strip().startswith("mCE")
    assert page.locator(".pin[aria-pressed=true]").count() == 6
    assert SCRIPT in page.locator("#curves .legend").inner_text()


@pytest.mark.slow
def test_the_drawer_opens_from_the_table_and_from_a_link_and_closes_by_escape(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name="gated", exact=True).first.click()
    drawer = page.get_by_role("dialog")
    text = drawer.inner_text()
    for said in (
        "Weighs modalities <by> gates.",
        "Hyper-parameters",
        "soft",
        "gaussian",
        "Provenance",
        "Cost",
        "Attention audit",
        "may be the best",
    ):
        assert said in text
    assert drawer.locator(".heatmap").first.locator("td.heat").count() >= 9 * 6
    assert "method=gated" in page.url
    page.keyboard.press("Escape")
    visit.soon(lambda: "method=" not in page.url)
    visit.soon(lambda: page.locator("dialog[open]").count() == 0)
    visit.soon(lambda: page.evaluate("document.activeElement.textContent") == "gated")
    visit.go("#method=" + "additive")
    assert "shapes: not run" in page.get_by_role("dialog").inner_text()


@pytest.mark.slow
def test_a_hostile_name_does_nothing(visit: Visit) -> None:
    page = visit.go()
    page.get_by_role("button", name=EVIL, exact=True).first.click()
    assert page.get_by_role("dialog").locator("h2").inner_text() == EVIL
    page.keyboard.press("Escape")
    assert page.locator("img").count() == 0
    visit.go("#track=<img src=x onerror=alert(3)>&slice=zzz&dataset=nope&sort=,,&pin=" + EVIL)
    assert len(visit.names()) > 5


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "paper"), [("light", (255, 255, 255)), ("dark", (18, 21, 26))])
def test_it_follows_the_theme_and_the_button(
    browser: "Browser", html: Path, scheme: Any, paper: tuple[int, ...]
) -> None:
    visit = Visit(browser, html, color_scheme=scheme)
    page = visit.go()
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == f"rgb{paper}"
    page.get_by_role("button", name="Switch between light and dark").click()
    visit.soon(lambda: page.evaluate(colour) != f"rgb{paper}")
    visit.context.close()
    assert visit.wrong == []


@pytest.mark.slow
def test_it_is_readable_on_a_phone_and_prints(browser: "Browser", html: Path) -> None:
    visit = Visit(browser, html, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = visit.go()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the page itself never scrolls sideways"
    name = page.locator("table.board tbody button.name").first
    name.tap()
    box = page.get_by_role("dialog").bounding_box()
    assert box is not None
    assert round(box["width"]) <= 390
    page.keyboard.press("Escape")
    page.emulate_media(media="print")
    visit.soon(lambda: not page.locator(".controls").is_visible())
    assert len(page.pdf()) > 10_000
    style = "(e, p) => getComputedStyle(e).getPropertyValue(p)"
    for cell in page.locator("table.board th").all():
        assert cell.evaluate(style, "position") == "static", "nothing floats over names"
    heat = page.locator("table.heatmap td").all()
    assert heat
    for cell in heat:
        assert cell.evaluate(style, "color") != cell.evaluate(style, "background-color")
        assert cell.evaluate(style, "print-color-adjust") == "exact", "white on a ground that is left out"
    for heading in page.locator("main h2, main h3").all():
        assert heading.evaluate(style, "break-after") == "avoid"
    visit.context.close()
    assert visit.wrong == []
