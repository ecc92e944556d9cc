"""The page in a real browser, Debian's Chromium; without it these tests are skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from profkit.core.units import format_bytes, format_share, format_time
from profkit.findings.accounts import Account, TakenFrom, TakenOut
from profkit.findings.values import Diagnosis, Finding
from profkit.report import render_comparison
from profkit.report.html.page import render_html
from profkit.report.json import render_json
from tests.report.test_comparison import WORSE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
screenshots = pytest.importorskip("tests.screenshots")
BROWSER = screenshots.find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: playwright.Browser, tmp_path: Path) -> Iterator[Opener]:
    opener = Opener(browser, tmp_path)
    yield opener
    opener.page.context.close()
    assert opener.complaints == []
    assert opener.requests == [opener.address]


class Opener:
    """Opens a report from a file and collects the errors and requests of the browser."""

    def __init__(self, browser: playwright.Browser, folder: Path) -> None:
        self.page = browser.new_context(color_scheme="light").new_page()
        self.file = folder / "report.html"
        self.address = self.file.as_uri()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def show(self, diagnosis: Diagnosis, width: int = 1400) -> playwright.Page:
        self.file.write_text(render_html(diagnosis), encoding="utf-8")
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.goto(self.address)
        return self.page


def test_the_page_opens_without_requests_or_errors(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    assert page.inner_text("h1") == "retained-graph at train.py:31: a step of 11.0 ms could take 6.27 ms"
    assert page.inner_text("#shown") == "20.0 ms shown"


def test_the_page_has_the_figures_of_diagnosis_json(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    """As they follow from the file alone, with nothing but the wording of units shared."""
    page, saved = opened.show(drawn_diagnosis), json.loads(render_json(drawn_diagnosis))
    shown = [one for one in saved["findings"] if one["severity"] != "info"]
    articles = page.locator("article")
    assert articles.count() == len(saved["findings"])
    for at, one in enumerate(shown):
        saving, text = one["saving"], articles.nth(at).inner_text()
        assert one["rule"] in text
        assert f"{one['location']['file']}" in text
        assert format_time(saving["time_ns_per_step"]) in text
        assert f"{format_share(saving['fraction'])} of the step" in text
        bar = articles.nth(at).locator("svg[role=img] > rect").nth(1)
        assert float((bar.get_attribute("width") or "").rstrip("%")) == pytest.approx(100 * saving["fraction"])
    parts = page.locator(".legend").first.locator("li").all_inner_texts()
    assert parts == [
        f"{share['label']} {format_share(share['fraction'])}, {format_time(share['time_ns_per_step'])}"
        for share in saved["timing"]["shares"]
    ]
    lanes = page.locator(".lanes > span:nth-child(3n)").all_inner_texts()
    pictures = saved["pictures"]
    assert lanes[1:3] == [format_share(lane["fraction"]) for lane in pictures["lanes"]]
    assert lanes[-1] == format_bytes(pictures["memory"]["peak_bytes"])
    leaves = page.eval_on_selector_all(".leaf", "leaves => leaves.map(leaf => leaf.getAttribute('width'))")
    assert [float(width.rstrip("%")) for width in leaves] == [100 * one["fraction"] for one in pictures["branches"]]


def test_a_table_is_sorted_by_clicking_its_heads(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click("summary:text-is('Lines')")
    table = page.locator("table.sortable").first
    assert table.locator("tbody tr td:first-child").all_inner_texts() == ["train.py:31", "backward"]
    table.locator("thead button").first.click()
    assert table.locator("th").first.get_attribute("aria-sort") == "descending"
    table.locator("thead button").first.click()
    assert table.locator("tbody tr td:first-child").all_inner_texts() == ["backward", "train.py:31"]


def test_buttons_and_keys_zoom_the_whole_timeline(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click("[data-do=in]")
    assert page.inner_text("#shown") == "10.0 ms shown, from 5.00 ms on"
    views = page.eval_on_selector_all(".area", "areas => areas.map(area => area.getAttribute('viewBox'))")
    assert views == ["2 0 4 63", "2 0 4 63", "500 0 1000 63", "2 0 4 63"]
    page.focus(".lanes")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#shown") == "10.0 ms shown, from 7.50 ms on"
    page.keyboard.press("0")
    assert page.inner_text("#shown") == "20.0 ms shown"


def test_a_drag_zooms_to_the_dragged_range(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.locator(".area").first.scroll_into_view_if_needed()
    box = page.locator(".area").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 3 / 4, y)
    page.mouse.up()
    assert page.inner_text("#shown") == "5.00 ms shown, from 10.0 ms on"


def test_a_mark_in_the_timeline_leads_to_its_finding(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click(".lanes a")
    assert page.url.endswith("#finding-1")
    assert page.inner_text("#finding-1 h3").endswith("retained-graph")
    opened.requests[:] = opened.requests[:1]  # going to a place of the page counts as one


def test_a_button_changes_the_theme(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(22, 24, 27)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"


def test_the_page_is_dark_on_a_dark_system(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"


@pytest.mark.parametrize("width", [375, 1400])
def test_nothing_is_wider_than_the_screen(opened: Opener, launched_diagnosis: Diagnosis, width: int) -> None:
    first, *others = launched_diagnosis.findings
    waits = TakenOut("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", TakenFrom.HOST, 1, 54_200, 2_230)
    accounted = replace(first, account=Account((waits,), 60_000, 8_000, 0.2, 0.1))
    page = opened.show(replace(launched_diagnosis, findings=(accounted, *others)), width)
    page.locator("details").evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [375, 1400])
def test_names_in_a_comparison_keep_enough_room(browser: playwright.Browser, tmp_path: Path, width: int) -> None:
    name = "train.py:31 loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))"
    moved = replace(WORSE, operators=(replace(WORSE.operators[0], name=name),))
    page = browser.new_page(viewport={"width": width, "height": 900})
    (tmp_path / "comparison.html").write_text(render_comparison(moved, "html"), encoding="utf-8")
    page.goto((tmp_path / "comparison.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cell = page.locator("td", has_text="cross_entropy").bounding_box()
    assert cell is not None
    assert cell["width"] >= 160
    page.close()


def test_a_click_on_a_line_widens_it(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click(".leaf >> nth=1")
    widths = page.eval_on_selector_all(".leaf", "leaves => leaves.map(leaf => leaf.getAttribute('width'))")
    assert widths[:2] == ["300%", "100%"]
    page.click("#flame-all")
    assert page.locator(".leaf").nth(1).get_attribute("width") == "25%"


def test_the_table_of_ranks_is_sorted_by_any_column(opened: Opener, launched_diagnosis: Diagnosis) -> None:
    page = opened.show(launched_diagnosis)
    page.click("summary:text('A table of the ranks')")
    first = page.locator("table.sortable tbody tr td").first
    assert first.inner_text() == "3"
    page.click("thead button:text-is('rank')")
    assert first.inner_text() == "7"
    page.click("thead button:text-is('rank')")
    assert first.inner_text() == "0"


def test_the_page_of_a_rank_has_the_figures_of_diagnosis_json(opened: Opener, launched_diagnosis: Diagnosis) -> None:
    page, launch = opened.show(launched_diagnosis), json.loads(render_json(launched_diagnosis))["launch"]
    page.locator("details").evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
    assert page.locator(".rank-page").count() == len(launch["ranks"])
    for one in launch["ranks"]:
        its = page.locator(f"#rank-{one['rank']}")
        text, details = its.inner_text(), one["details"]
        assert f"{format_time(one['step_time_ns'])}, the median of {one['steps']} steps" in text
        for wait in (*details["waits_for"], *details["awaited_by"]):
            assert f"rank {wait['rank']} {format_time(wait['time_ns'])}" in text
        standing = [one["exposed_ns"], one["waited_ns"]]
        times = [*(own["time_ns"] for own in details["own"]), *standing]
        rows = its.locator(".parts tbody tr")
        shown = [rows.nth(at).locator("td").all_inner_texts() for at in range(rows.count())]
        assert [row[1] for row in shown] == [format_time(time) if time else "0" for time in times]
        assert [row[2] for row in shown] == [format_share(time / details["step_ns"]) for time in times]
        own_medians = [format_time(own["median_ns"]) for own in details["own"]]
        assert [row[3] for row in shown] == [*own_medians, "2.00 ms", format_time(37_000_000)]
        titles = its.locator("g > title").evaluate_all("titles => titles.map(title => title.textContent)")
        assert len(titles) == len(details["steps"])
        for title, step in zip(titles, details["steps"], strict=True):
            assert title.startswith(
                f"step {step['number']}: {format_time(step['time_ns'])}, of which own work "
                f"{format_time(step['own_ns'])}, "
            )
        (call,) = details["calls"]
        assert f"{call['operation']}, 2 of 4 in a step" in text
        assert format_bytes(call["size_bytes"]) in text


@pytest.mark.parametrize("way", ["picture", "table", "keyboard", "address"])
@pytest.mark.parametrize("has_script", [True, False])
def test_a_rank_leads_to_its_page(
    browser: playwright.Browser, tmp_path: Path, launched_diagnosis: Diagnosis, way: str, has_script: bool
) -> None:
    context = browser.new_context(java_script_enabled=has_script)
    page = context.new_page()
    file = tmp_path / "report.html"
    file.write_text(render_html(launched_diagnosis), encoding="utf-8")
    page.goto(file.as_uri() + ("#rank-3" if way == "address" else ""))
    assert page.locator("#rank-3").is_visible() == (way == "address")
    if way == "picture":
        page.locator(".ranks svg").nth(3).click()
    elif way == "table":
        page.click("summary:text('A table of the ranks')")
        page.click("table.by-rank a:text-is('3')")
    elif way == "keyboard":
        page.locator(".ranks a").nth(3).focus()
        page.keyboard.press("Enter")
    page.locator("#rank-3").wait_for(state="visible")
    assert page.url.endswith("#rank-3")
    assert "it waits for its DataLoader" in page.inner_text("#rank-3")
    assert not page.locator("#rank-2").is_visible()
    context.close()


def test_search_results_are_highlighted(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.fill("#flame-find", " MM")
    assert page.inner_text("#flame-found") == "2 of 4"
    clear = page.eval_on_selector_all(".leaf:not(.other-name)", "leaves => leaves.map(leaf => leaf.dataset.name)")
    assert clear == ["aten::mm", "gemm"]
    page.fill("#flame-find", "")
    assert page.locator(".other-name").count() == 0


def test_hostile_text_is_shown_as_text(opened: Opener, drawn_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    page = opened.show(replace(drawn_diagnosis, findings=(hostile_finding,), health=(hostile_finding.message,)))
    assert page.locator("script").count() == 1
    assert page.locator("u, i").count() == 0
    assert "<script>alert(1)</script>" in page.inner_text("article p")


@pytest.mark.parametrize("width", [375, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_violates_no_accessibility_rule(
    browser: playwright.Browser,
    tmp_path: Path,
    launched_diagnosis: Diagnosis,
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    """The rules of axe-core, which is injected into the page past its policy."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    (tmp_path / "report.html").write_text(render_html(launched_diagnosis), encoding="utf-8")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((tmp_path / "report.html").as_uri())
    page.locator("details").evaluate_all("folds => folds.forEach(fold => { fold.open = true; })")
    violations = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:90] for node in one["nodes"]]) for one in violations] == []
    context.close()


def test_the_page_shows_the_same_without_its_script(
    browser: playwright.Browser, tmp_path: Path, drawn_diagnosis: Diagnosis
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    (tmp_path / "report.html").write_text(render_html(drawn_diagnosis), encoding="utf-8")
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".area").count() == 4
    assert not page.locator("button").first.is_visible()
    context.close()
