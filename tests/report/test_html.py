from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from profkit.findings import Diagnosis, Finding, TimeShare, Timing, WorkerTimes
from profkit.report.html import render_html

VOID = {"meta", "br"}


class Page(HTMLParser):
    """The elements, attributes and text of a page; every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        place = self.open[-1] if self.open else ""
        self.text[place] = self.text.get(place, "") + data

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def policy(self) -> str | None:
        metas = [attributes for name, attributes in self.elements if name == "meta"]
        return next(a["content"] for a in metas if a.get("http-equiv") == "Content-Security-Policy")


@pytest.fixture
def hostile_page(full_diagnosis: Diagnosis, hostile_finding: Finding) -> Page:
    attack = hostile_finding.message
    diagnosis = replace(
        full_diagnosis,
        findings=(hostile_finding,),
        skipped={attack: attack},
        health=(attack,),
        run=replace(full_diagnosis.run, command=(attack,), device=attack),
        timing=replace(full_diagnosis.timing, steps_from=attack),
    )
    return Page(render_html(diagnosis, {hostile_finding.rule: f"</details>{attack}"}))


def test_every_part_of_the_diagnosis_is_on_the_page(full_diagnosis: Diagnosis) -> None:
    page = Page(render_html(full_diagnosis))
    assert page.text["title"] == page.text["h1"]
    assert page.text["h1"] == "1 fault costs 43 % of the step: retained-graph at train.py:31"
    assert page.text["h2"] == (
        "What to change, the largest gain firstFor your informationNot looked atWhere the step's time wentThe recording"
    )
    assert page.text["h3"] == " retained-graph launch-bound zero-filled-gradients"
    assert page.text["span"] == "highmedium opportunityinfo"
    assert "losses.append(loss)" in page.text["code"]
    assert "5.30 ms per step (43 % of the step; likely 30 to 50 %)" in page.text["dd"]
    assert page.text["li"] == "The trace was cut off: 3 of 8 steps are missing."


def test_no_text_of_a_finding_becomes_an_element(hostile_page: Page, full_diagnosis: Diagnosis) -> None:
    assert hostile_page.names() <= {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "article"),
        *("h1", "h2", "h3", "p", "span", "dl", "dt", "dd", "pre", "code", "ul", "li", "br"),
        *("details", "summary", "table", "tr", "th", "td", "progress"),
    }
    assert "<script>alert(1)</script>" in hostile_page.text["code"]
    assert "\x1b" not in "".join(hostile_page.text.values())


def test_the_page_fetches_nothing_and_runs_nothing(hostile_page: Page) -> None:
    attributes = {name for _, attrs in hostile_page.elements for name in attrs}
    assert attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "scope", "max", "value"}
    assert "url(" not in hostile_page.text["style"]
    assert "@import" not in hostile_page.text["style"]


def test_the_policy_allows_the_style_sheet_alone(hostile_page: Page) -> None:
    digest = base64.b64encode(hashlib.sha256(hostile_page.text["style"].encode()).digest()).decode()
    assert hostile_page.policy() == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_a_rule_s_page_is_folded_beside_its_finding(full_diagnosis: Diagnosis) -> None:
    page = Page(render_html(full_diagnosis, {"retained-graph": "What it detects\n\n    graphs <kept>\n", "other": "x"}))
    assert page.text["summary"] == "EvidenceAbout this rule"
    assert "What it detects\n\n    graphs <kept>" in page.text["code"]


def test_nothing_known_and_nothing_found_is_still_a_page(empty_diagnosis: Diagnosis) -> None:
    page = Page(render_html(empty_diagnosis))
    assert page.text["h1"] == "Cannot judge: the recording holds no steps to measure"
    assert "section" not in page.names()


def test_each_worker_has_a_line(clean_diagnosis: Diagnosis) -> None:
    worker = WorkerTimes(0, 1, 21, 10**9, 0.38, 0.01, 0.6, 7_340_000, 2_100_000)
    page = render_html(replace(clean_diagnosis, workers=(worker,)))
    assert "<h2>What the DataLoader&#x27;s workers did</h2>" in page
    assert "<li>worker 1: fetching 38 %, collating 1.0 %" in page


@pytest.mark.parametrize("shares", [(), (TimeShare("device: computing", 7_900_000, 0.371),)])
def test_what_bounds_the_step_stands_above_where_its_time_went(clean_diagnosis: Diagnosis, shares) -> None:
    timing = Timing(5, 21_300_000, "", shares=shares, bound_by="host", device_step_time_ns=7_900_000)
    page = render_html(replace(clean_diagnosis, timing=timing))
    assert "<p>The host bounds the step: it takes 21.3 ms, the device works 7.90 ms of it</p>" in page
    assert ("<table>" in page) is bool(shares)
