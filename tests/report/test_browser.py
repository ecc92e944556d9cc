"""The page in a real browser: Debian's Chromium, which every check below skips without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from profkit.findings import Diagnosis, Finding
from profkit.report.html.page import render_html

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
    """Opens one report from a file and notes what the browser complains of and asks for."""

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


def test_the_page_opens_without_a_request_or_a_complaint(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    assert page.inner_text("h1") == "1 fault costs 43 % (30 to 50) of the step: retained-graph at train.py:31"
    assert page.inner_text("#shown") == "20.0 ms shown"


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


def test_a_drag_shows_what_was_dragged_over(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    box = page.locator(".area").first.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 3 / 4, y)
    page.mouse.up()
    assert page.inner_text("#shown") == "5.00 ms shown, from 10.0 ms on"


def test_a_mark_leads_to_its_finding(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click(".lanes a")
    assert page.url.endswith("#finding-1")
    assert page.inner_text("#finding-1 h3").endswith("retained-graph")
    opened.requests[:] = opened.requests[:1]  # going to a place of the page counts as one


def test_the_theme_changes_by_a_button(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(22, 24, 27)"
    page.click("#theme")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"


def test_a_dark_system_gets_a_dark_page(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"


@pytest.mark.parametrize("width", [375, 1400])
def test_nothing_is_wider_than_the_screen(opened: Opener, drawn_diagnosis: Diagnosis, width: int) -> None:
    page = opened.show(drawn_diagnosis, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_click_on_a_line_widens_it(opened: Opener, drawn_diagnosis: Diagnosis) -> None:
    page = opened.show(drawn_diagnosis)
    page.click(".leaf >> nth=1")
    widths = page.eval_on_selector_all(".leaf", "leaves => leaves.map(leaf => leaf.getAttribute('width'))")
    assert widths[:2] == ["300%", "100%"]
    page.click("#flame-all")
    assert page.locator(".leaf").nth(1).get_attribute("width") == "25%"


def test_hostile_text_stays_text(opened: Opener, drawn_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    page = opened.show(replace(drawn_diagnosis, findings=(hostile_finding,), health=(hostile_finding.message,)))
    assert page.locator("script").count() == 1
    assert page.locator("u, i").count() == 0
    assert "<script>alert(1)</script>" in page.inner_text("article p")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(browser: playwright.Browser, tmp_path: Path, drawn_diagnosis: Diagnosis,
                                            scheme: Literal["light", "dark"]) -> None:  # fmt: skip
    """Those of axe-core, which has to be put into the page past its policy."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)
    page = context.new_page()
    (tmp_path / "report.html").write_text(render_html(drawn_diagnosis), encoding="utf-8")
    page.goto((tmp_path / "report.html").as_uri())
    violations = axe.Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:90] for node in one["nodes"]]) for one in violations] == []
    context.close()


def test_without_its_script_the_page_shows_the_same(browser: playwright.Browser, tmp_path: Path,
                                                    drawn_diagnosis: Diagnosis) -> None:  # fmt: skip
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    (tmp_path / "report.html").write_text(render_html(drawn_diagnosis), encoding="utf-8")
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(".area").count() == 4
    assert not page.locator("button").first.is_visible()
    context.close()
