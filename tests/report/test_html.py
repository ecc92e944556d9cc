"""The report as a page."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from profkit.findings.pictures import Branch, Lane, Mark, MemoryCurve, Pictures, StepPicture
from profkit.findings.values import Change, Diagnosis, Finding, Location, Saving, TimeShare, Timing, WorkerTimes
from profkit.report.html.drawing import column_labels, column_ticks
from profkit.report.html.page import render_html

VOID = {"meta", "br", "input"}
"""Void elements of HTML; elements of pictures close themselves."""


class Page(HTMLParser):
    """The elements, attributes and text of a page. Every element must be closed in order. Text in pictures belongs to
    ``svg``."""

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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        place = "svg" if "svg" in self.open else self.open[-1] if self.open else ""
        self.text[place] = self.text.get(place, "") + data

    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def policy(self) -> str | None:
        metas = [attributes for name, attributes in self.elements if name == "meta"]
        return next(a["content"] for a in metas if a.get("http-equiv") == "Content-Security-Policy")

    def shown(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of each element of this name."""
        return [attributes for element, attributes in self.elements if element == name]


def _pictures_of(diagnosis: Diagnosis) -> Pictures:
    assert diagnosis.pictures is not None
    return diagnosis.pictures


@pytest.fixture
def hostile_page(drawn_diagnosis: Diagnosis, hostile_finding: Finding) -> Page:
    attack = hostile_finding.message
    pictures = replace(
        _pictures_of(drawn_diagnosis),
        parts=(attack, attack),
        lanes=(Lane(attack, attack, 0.5),),
        memory=MemoryCurve(attack, 0, 1),
        branches=(Branch(0, attack, 0.0, 1.0, 1), Branch(1, attack, 0.0, 1.0, 1)),
    )
    diagnosis = replace(
        drawn_diagnosis,
        pictures=pictures,
        findings=(hostile_finding,),
        skipped={attack: attack},
        health=(attack,),
        run=replace(drawn_diagnosis.run, command=(attack,), device=attack),
        timing=replace(drawn_diagnosis.timing, steps_from=attack, shares=(TimeShare(attack, 1, 1.0),)),
    )
    return Page(render_html(diagnosis, {hostile_finding.rule: f"</details>{attack}"}))


def test_every_part_of_the_diagnosis_is_on_the_page(full_diagnosis: Diagnosis) -> None:
    page = Page(render_html(full_diagnosis))
    verdict = "1 fault costs 43 % (30 to 50) of the step: retained-graph at train.py:31"
    assert page.text["title"] == verdict
    assert page.text["h1"] == "retained-graph at train.py:31: a step of 11.0 ms could take 6.27 ms"
    assert f"{verdict}." in page.text["p"]
    assert page.text["h2"] == (
        "What to change, the largest gain firstFor your informationWhere the step's time wentThe recordingNot looked at"
    )
    assert page.text["h3"] == "1.  retained-graph2.  launch-bound zero-filled-gradients"
    assert page.text["span"].endswith("highmedium opportunityinfo")
    assert "losses.append(loss)" in page.text["code"]
    assert "5.30 ms per step (43 % of the step; likely 30 to 50 %)" in page.text["dd"]
    assert page.text["li"].endswith("The trace was cut off: 3 of 8 steps are missing.")


def test_text_of_a_finding_cannot_become_an_element(hostile_page: Page) -> None:
    assert hostile_page.names() <= {
        *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "article"),
        *("h1", "h2", "h3", "p", "span", "dl", "dt", "dd", "pre", "code", "ul", "li", "br"),
        *("details", "summary", "table", "thead", "tbody", "tr", "th", "td", "div", "button", "a", "b", "h4"),
        *("script", "svg", "rect", "path", "line", "text", "g", "label", "input"),
    }
    assert len(hostile_page.shown("script")) == 1
    assert "<script>alert(1)</script>" in hostile_page.text["code"]
    assert "\x1b" not in "".join(hostile_page.text.values())


def test_the_page_fetches_nothing(hostile_page: Page) -> None:
    attributes = {name for _, attrs in hostile_page.elements for name in attrs}
    assert not attributes & {"src", "srcset", "style", "xlink:href"}
    assert not [name for name in attributes if name.startswith("on")]
    assert {link["href"] for link in hostile_page.shown("a")} == {"#finding-1"}
    assert "url(" not in hostile_page.text["style"]
    assert "@import" not in hostile_page.text["style"]


def test_the_policy_allows_the_one_style_sheet_and_the_one_script(hostile_page: Page) -> None:
    style, script = (
        base64.b64encode(hashlib.sha256(hostile_page.text[name].encode()).digest()).decode()
        for name in ("style", "script")
    )
    assert hostile_page.policy() == (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_page_of_a_rule_is_folded_beside_its_finding(full_diagnosis: Diagnosis) -> None:
    page = Page(render_html(full_diagnosis, {"retained-graph": "What it detects\n\n    graphs <kept>\n", "other": "x"}))
    assert page.text["summary"] == (
        "How the step was timedEvidenceAbout this rule"
        "zero-filled-gradients: Gradients are filled with zeros1 rule2 rules"
    )
    assert "What it detects\n\n    graphs <kept>" in page.text["code"]


def test_evidence_is_shown_in_readable_units(full_diagnosis: Diagnosis, leak: Finding) -> None:
    figures = {"waited_ns_per_step": 69_443_301, "memory_bytes": 709_123, "idle_fraction": 0.5, "calls": 12_345}
    page = Page(render_html(replace(full_diagnosis, findings=(replace(leak, evidence=figures),))))
    assert "waited per stepmemory bytesidle fractioncalls" in page.text["dt"]
    assert "69.4 ms709 kB50 %12,345" in page.text["dd"]
    assert "69,443,301" not in "".join(page.text.values())


def test_an_empty_diagnosis_is_still_a_page(empty_diagnosis: Diagnosis) -> None:
    page = Page(render_html(empty_diagnosis))
    assert page.text["h1"] == "Cannot judge: the recording holds no steps to measure"
    assert "section" not in page.names()


def test_each_worker_has_a_line(clean_diagnosis: Diagnosis) -> None:
    worker = WorkerTimes(0, 1, 21, 10**9, 0.38, 0.01, 0.6, 7_340_000, 2_100_000)
    page = render_html(replace(clean_diagnosis, workers=(worker,)))
    assert "<h2>What the DataLoader's workers did</h2>" in page
    assert "<li>worker 1: fetching 38 %, collating 1.0 %" in page
    bar = [(piece["class"], piece["x"], piece["width"]) for piece in Page(page).shown("rect") if "x" in piece]
    assert bar == [("compute", "0.0%", "38.0%"), ("copy", "38.0%", "1.0%"), ("idle", "39.0%", "60.0%")]


_SHARES = (TimeShare("device: computing", 7_900_000, 0.371), TimeShare("idle: launching work", 13_400_000, 0.629))


@pytest.mark.parametrize("shares", [(), _SHARES])
def test_the_limit_of_the_step_comes_before_the_shares_of_its_time(clean_diagnosis: Diagnosis, shares) -> None:
    timing = Timing(5, 21_300_000, "", shares=shares)
    page = render_html(replace(clean_diagnosis, timing=timing))
    bound = "The host bounds the step: launching work 13.4 ms; the device works 7.90 ms of 21.3 ms"
    assert (f"<p>{bound}</p>" in page) is bool(shares)
    assert ("The parts of a step" in page) is bool(shares)


def test_the_verdict_shows_the_step_now_and_after_each_change(full_diagnosis: Diagnosis) -> None:
    page = Page(render_html(full_diagnosis))
    bars = [rect["width"] for rect in page.shown("rect") if rect["class"] in ("now", "after")]
    assert bars[:3] == ["100.0%", "57.0%", "92.0%"]
    assert "now11.0 mswithout retained-graph6.27 ms (5.50 ms to 7.70 ms)without" in page.text["span"]


def test_the_timeline_has_a_lane_for_each_thing_and_each_finding(drawn_diagnosis: Diagnosis) -> None:
    page = Page(render_html(drawn_diagnosis))
    areas = [area["aria-label"] for area in page.shown("svg") if area.get("class") == "area"]
    assert areas == [
        "device: kernels: 50 % of the time",
        "waiting for data: 50 % of the time",
        "Where retained-graph lies",
        "Memory allocated: from 0 B to 2.89 GB",
    ]
    assert page.text["a"] == "1. retained-graph"
    paths = [path["d"] for path in page.shown("path")]
    assert "M0 63v-63h2v63h2v-63h2v63h2v0z" in paths
    assert "M0 0H500V63H0zM1000 0H1500V63H1000z" in paths


def test_lines_contain_operators_and_operators_kernels(drawn_diagnosis: Diagnosis) -> None:
    page = Page(render_html(drawn_diagnosis))
    leaves = [(leaf["x"], leaf["width"], leaf["y"]) for leaf in page.shown("svg") if leaf.get("class") == "leaf"]
    assert leaves == [("0.0%", "75.0%", "0"), ("75.0%", "25.0%", "0"), ("0.0%", "50.0%", "24"), ("0.0%", "50.0%", "48")]
    assert page.text["td"] == "3.00 ms75 %1.00 ms25 %" + "2.00 ms50 %" * 2
    assert "No modules were recorded." in page.text["p"]


def test_a_diagnosis_from_a_file_may_contain_any_pictures(drawn_diagnosis: Diagnosis) -> None:
    odd = replace(
        _pictures_of(drawn_diagnosis),
        steps=(StepPicture(-1, -5, ()), StepPicture(2**70, 0, (1, 2, 3))),
        marks=(Mark(99, ((5.0, -1.0),)),),
        lanes=(Lane("", "", -1.0),),
        branches=(Branch(-7, "", 9.0, -9.0, -1), Branch(4, "x", 0.0, 1.0, 0)),
    )
    assert Page(render_html(replace(drawn_diagnosis, pictures=odd))).text["h1"]


def test_the_line_is_highlighted_among_those_around_it(full_diagnosis: Diagnosis, leak: Finding) -> None:
    assert leak.location is not None
    place = replace(leak.location, around=("for x in xs:", "    losses.append(loss)", "<b>"), around_from=30)
    page = render_html(replace(full_diagnosis, findings=(replace(leak, location=place),)))
    (marked,) = re.findall("<mark>(.*)</mark>", page)
    assert re.sub("<.*?>", "", marked) == "   31      losses.append(loss)"
    (rows,) = re.findall('<pre class="rows">(.*?)</pre>', page, re.DOTALL)
    assert re.sub("<.*?>", "", rows) == "   30  for x in xs:\n   31      losses.append(loss)\n   32  &lt;b&gt;"


def test_a_long_line_goes_on_under_its_own_beginning(full_diagnosis: Diagnosis, leak: Finding) -> None:
    assert leak.location is not None
    place = replace(leak.location, around=("    return x + 1",), around_from=31)
    page = Page(render_html(replace(full_diagnosis, findings=(replace(leak, location=place),))))
    assert "   31      return x + 1" in page.text["span"]
    assert [row["class"] for row in page.shown("span") if row.get("class") == "number"] == ["number", "number"]


def test_a_place_on_this_machine_opens_in_the_editor(full_diagnosis: Diagnosis, leak: Finding, tmp_path: Path) -> None:
    (tmp_path / "<b>&x.py").touch()
    here = replace(full_diagnosis, findings=(replace(leak, location=Location(str(tmp_path / "<b>&x.py"), 31, "f")),))
    (link,) = Page(render_html(here, editor="vscode://file{file}:{line}")).shown("a")
    assert link["href"] == f"vscode://file{tmp_path}/%3Cb%3E%26x.py:31"
    assert not Page(render_html(here)).shown("a")


def test_a_fix_with_a_changed_line_is_shown_as_a_diff(full_diagnosis: Diagnosis, leak: Finding) -> None:
    change = Change("train.py", 31, "losses.append(loss)  # <b>", "losses.append(loss.detach())")
    page = Page(render_html(replace(full_diagnosis, findings=(replace(leak, change=change),))))
    assert page.text["del"] == "- losses.append(loss)  # <b>"
    assert page.text["ins"] == "+ losses.append(loss.detach())"
    assert not {"del", "ins"} & Page(render_html(full_diagnosis)).names()


def test_holders_and_growth_of_memory_are_listed_below_its_curve(drawn_diagnosis: Diagnosis) -> None:
    page = Page(render_html(drawn_diagnosis))
    assert "Who holds the memory" in page.text["h2"]
    assert "Tensors grow by 1.50 kB each step." in page.text["p"]
    assert "train.py:31 x @ <w>" in page.text["code"]


def test_text_between_backticks_in_a_fix_is_code(full_diagnosis: Diagnosis, leak: Finding) -> None:
    finding = replace(leak, fix="Call `f(<b>)` once:\n    y = f(x)")
    page = Page(render_html(replace(full_diagnosis, findings=(finding,))))
    assert "Call  once:" in page.text["p"]
    assert "losses.append(loss)f(<b>)    y = f(x)train.py:44 in evaluate" in page.text["code"]


def test_the_command_is_shown_at_the_top(full_diagnosis: Diagnosis) -> None:
    page = render_html(full_diagnosis)
    assert page.index("python train.py, cpu") < page.index("<h1>")


def test_rules_without_findings_are_named_if_the_recording_can_be_judged(
    full_diagnosis: Diagnosis, empty_diagnosis: Diagnosis
) -> None:
    pages = {"retained-graph": "", "pageable-transfer": "", "float64-compute": "", "graph-break": ""}
    page = render_html(full_diagnosis, pages)
    assert "<summary>2 rules</summary><code>float64-compute</code>, <code>graph-break</code></details>" in page
    assert "Looked for and not found" not in render_html(full_diagnosis)
    assert "Looked for and not found" not in render_html(empty_diagnosis, pages)


def test_a_verdict_that_memory_grows_is_drawn_from_step_to_step(drawn_diagnosis: Diagnosis) -> None:
    assert drawn_diagnosis.pictures is not None
    assert drawn_diagnosis.pictures.memory is not None
    curve = replace(drawn_diagnosis.pictures.memory, step_end_bytes=(1_000, 9_001_000))
    pictures = replace(drawn_diagnosis.pictures, memory=curve)
    page = render_html(replace(drawn_diagnosis, pictures=pictures))
    assert "from 1.00 kB to 9.00 MB. The bars do not begin at 0." in page
    assert "<title>step 8: 9.00 MB</title>" in page
    steady = replace(drawn_diagnosis, pictures=replace(pictures, memory=replace(curve, step_end_bytes=(1, 1))))
    assert "do not begin at 0" not in render_html(steady)
    other = replace(drawn_diagnosis, pictures=pictures, findings=drawn_diagnosis.findings[1:])
    assert "do not begin at 0" not in render_html(other), "a verdict about time"


@pytest.mark.parametrize(("grown", "is_drawn"), [(1_900_000, False), (2_100_000, True)])
def test_bars_are_drawn_where_they_show_half_of_the_growth(drawn_diagnosis, leak, grown, is_drawn) -> None:
    curve = replace(drawn_diagnosis.pictures.memory, step_end_bytes=(1_000, 1_000 + grown))
    growing = replace(leak, saving=Saving(0, 0.0, 0.0, 0.0, 4_000_000))
    pictures = replace(drawn_diagnosis.pictures, memory=curve)
    page = render_html(replace(drawn_diagnosis, findings=(growing,), pictures=pictures))
    assert ("do not begin at 0" in page) == is_drawn


@pytest.mark.parametrize(
    ("saving", "headline"),
    [
        (Saving(5_300_000, 0.43, 0.3, 0.5), "retained-graph at train.py:31: a step of 11.0 ms could take 6.27 ms"),
        (
            Saving(5_300_000, 0.43, 0.3, 0.5, of_part=True),
            "1 fault costs 43 % (30 to 50) of the part that was recorded",
        ),
        (Saving(0, 0.0, 0.0, 0.0, 4_000_000), "1 fault makes memory grow by 4.00 MB per step"),
    ],
)
def test_the_headline_is_the_change_and_its_worth_if_it_has_a_price(full_diagnosis, leak, saving, headline) -> None:
    diagnosis = replace(full_diagnosis, findings=(replace(leak, saving=saving),))
    assert Page(render_html(diagnosis)).text["h1"].startswith(headline)


@pytest.mark.parametrize(
    ("fix", "shown"),
    [
        ("Pass `foreach=True`. It updates all.", "Pass foreach=True."),
        ("Make workers: DataLoader(..., num_workers=2)\n    code", "Make workers: DataLoader(..., num_workers=2)"),
        ("It takes 1.5 ms. `x` too.", "It takes 1.5 ms."),
        ("Ask it again:\n    next(batches)", "Ask it again"),
        ("", None),
    ],
)
def test_the_first_sentence_of_the_fix_stands_under_the_headline(full_diagnosis, leak, fix, shown) -> None:
    timed = replace(leak, saving=Saving(5_300_000, 0.43, 0.3, 0.5), fix=fix)
    page = render_html(replace(full_diagnosis, findings=(timed,)))
    assert ('class="to-do"' in page) == (shown is not None)
    if shown is not None:
        assert shown == re.sub("</?code>", "", page.partition('class="to-do">')[2].partition("</p>")[0])


def test_where_the_headline_names_no_fault_there_is_nothing_to_do_under_it(full_diagnosis, leak) -> None:
    grows = replace(leak, saving=Saving(0, 0.0, 0.0, 0.0, 4_000_000))
    assert 'class="to-do"' in render_html(replace(full_diagnosis, findings=(grows,)))
    of_part = replace(leak, saving=Saving(5_300_000, 0.43, 0.3, 0.5, of_part=True))
    assert 'class="to-do"' not in render_html(replace(full_diagnosis, findings=(of_part,)))


def test_the_bar_of_a_finding_stands_at_its_price_in_the_colour_of_its_severity(full_diagnosis, leak) -> None:
    timed = replace(leak, saving=Saving(5_300_000, 0.43, 0.3, 0.5))
    page = render_html(replace(full_diagnosis, findings=(timed,)))
    price = page.partition("<dt>Cost</dt>")[2].partition("</dd>")[0]
    assert f'class="mark-{leak.severity.value}" width="43.0%"' in price


@pytest.mark.parametrize(
    ("longest_ns", "ticks"),
    [
        (10_000_000, [(80.0, "2.00 ms"), (60.0, "4.00 ms"), (40.0, "6.00 ms"), (20.0, "8.00 ms")]),
        (20_000_000, [(75.0, "5.00 ms"), (50.0, "10.0 ms"), (25.0, "15.0 ms"), (0.0, "20.0 ms")]),
        (12_300_000, [(59.35, "5.00 ms"), (18.7, "10.0 ms")]),
        (48_000_000, [(58.33, "20.0 ms"), (16.67, "40.0 ms")]),
        (0, []),
    ],
)
def test_the_columns_have_round_times_beside_them(longest_ns, ticks) -> None:
    pictures = Pictures(parts=("a",), steps=(StepPicture(0, longest_ns, (longest_ns,)),))
    assert [(one.y, one.text) for one in column_ticks(pictures)] == ticks


def test_a_scenarios_note_to_its_tests_is_not_shown(full_diagnosis: Diagnosis, leak: Finding) -> None:
    place = Location("a.py", 3, "f", "x = f(y)  # expect: some-rule")
    change = Change("a.py", 3, "x = f(y)  # expect: some-rule", "x = g(y)  # expect: some-rule")
    page = render_html(replace(full_diagnosis, findings=(replace(leak, location=place, change=change),)))
    assert "expect" not in page
    assert "+ x = g(y)" in page


def test_a_step_that_might_take_no_time_is_told_by_its_most(full_diagnosis: Diagnosis, leak: Finding) -> None:
    finding = replace(leak, saving=Saving(5_300_000, 0.9, 0.6, 1.0))
    assert "1.10 ms (at most 4.40 ms)" in render_html(replace(full_diagnosis, findings=(finding,)))


@pytest.mark.parametrize(("steps", "numbers"), [(1, []), (3, [1, 2, 3]), (20, [1, 4, 7, 10, 13, 16, 19])])
def test_the_columns_are_numbered_as_far_as_there_is_room(steps: int, numbers: list[int]) -> None:
    drawn = tuple(StepPicture(at + 1, 10, (10,)) for at in range(steps))
    labels = column_labels(Pictures(parts=("computing",), steps=drawn))
    assert [one.text for one in labels] == [str(number) for number in numbers]
    assert all(0 < one.x < 100 for one in labels)


def test_a_list_in_a_fix_is_a_list(leak: Finding, full_diagnosis: Diagnosis) -> None:
    finding = replace(leak, fix="The most first.\n- up to 3 MB: `f()`.\n- up to 2 MB: <b>.")
    page = render_html(replace(full_diagnosis, findings=(finding,)))
    listed = "<li>up to 3 MB: <code>f()</code>.</li><li>up to 2 MB: &lt;b&gt;.</li>"
    assert f'<p>The most first.</p><ul class="changes">{listed}</ul>' in page
