"""A comparison as a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.diagnosis.compare.comparison import Verdict
from profkit.report.comparison_wording import headline, signed_share
from profkit.report.html.comparison import render_html
from tests.report.test_comparison import WORSE
from tests.report.test_html import Page

TIMED = replace(
    WORSE,
    before=replace(WORSE.before, step_ns=(12_300_000, 12_000_000)),
    after=replace(WORSE.after, step_ns=(13_100_000, 26_200_000)),
)


def test_both_sides_are_drawn_on_one_axis_with_steps_and_interval() -> None:
    page = Page(render_html(TIMED))
    bars = [rect["width"] for rect in page.shown("rect") if rect["class"] in ("now", "after")]
    assert bars == ["46.95%", "50.0%"]
    (band,) = [rect for rect in page.shown("rect") if rect["class"] == "band"]
    assert (band["x"], band["width"]) == ("48.4%", "3.43%")
    assert [dot["cx"] for dot in page.shown("circle")] == ["46.95%", "45.8%", "50.0%", "100.0%"]


def test_the_page_uses_the_words_of_the_text() -> None:
    page = Page(render_html(TIMED))
    assert page.text["h1"] == headline(TIMED)
    assert "new: tensor-element-loop at train.py:31" in page.text["li"]
    assert "aten::mm" in page.text["code"]


def test_a_comparison_without_an_interval_has_no_band() -> None:
    unsure = replace(TIMED, step_time=replace(TIMED.step_time, verdict=Verdict.INCONCLUSIVE, low=None, high=None))
    assert not [rect for rect in Page(render_html(unsure)).shown("rect") if rect["class"] == "band"]


def test_one_long_step_does_not_squeeze_the_others() -> None:
    odd = replace(TIMED, after=replace(TIMED.after, step_ns=(10**12,)))
    page = Page(render_html(odd))
    assert [rect["width"] for rect in page.shown("rect") if rect["class"] == "after"] == ["25.0%"]


def test_hostile_names_are_shown_as_text() -> None:
    attack = "<script>alert(1)</script>"
    page = Page(render_html(replace(TIMED, before=replace(TIMED.before, paths=(attack,)))))
    assert page.shown("script") == []
    assert attack in page.text["dd"]


@pytest.mark.parametrize(
    ("change", "text"),
    [(0.05, "+5.0 %"), (-0.5, "-50 %"), (8.9, "+890 %"), (9.0, "10 times as long"), (724.0, "725 times as long")],
)
def test_changes_are_shown_in_readable_numbers(change: float, text: str) -> None:
    assert signed_share(change) == text
