"""A comparison as a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.diagnosis.compare.comparison import MovedBranch, MovedTree, Verdict
from profkit.report.comparison.wording import headline, signed_share
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
    assert bars == ["86.27%", "91.88%"]
    (band,) = [rect for rect in page.shown("rect") if rect["class"] == "band"]
    assert (band["x"], band["width"]) == ("88.94%", "6.3%")
    assert [dot["cx"] for dot in page.shown("circle")] == ["86.27%", "84.16%", "91.88%"]


def test_the_page_uses_the_words_of_the_text() -> None:
    page = Page(render_html(TIMED))
    assert page.text["h1"] == headline(TIMED)
    assert "new: tensor-element-loop at train.py:31" in page.text["li"]
    assert "aten::mm" in page.text["code"]


def test_a_comparison_without_an_interval_has_no_band() -> None:
    unsure = replace(TIMED, step_time=replace(TIMED.step_time, verdict=Verdict.INCONCLUSIVE, low=None, high=None))
    assert not [rect for rect in Page(render_html(unsure)).shown("rect") if rect["class"] == "band"]


def test_one_long_step_does_not_squeeze_the_others() -> None:
    steps = (13_000_000, 13_100_000, 13_200_000, 10**12)
    page = Page(render_html(replace(TIMED, after=replace(TIMED.after, step_ns=steps))))
    (after,) = [float(rect["width"][:-1]) for rect in page.shown("rect") if rect["class"] == "after"]
    assert after > 85
    assert len(page.shown("circle")) == 2 + 3
    assert "Beyond the axis: 1 step after, up to 1,000 s." in page.text["p"]


def test_the_axis_has_round_times() -> None:
    text = render_html(TIMED)
    assert [time in text for time in (">0</text>", ">5.00 ms</text>", ">10.0 ms</text>", ">15.0 ms</text>")] == [
        True,
        True,
        True,
        False,
    ]
    assert [line["x1"] for line in Page(text).shown("line")][1:] == ["0.0%", "35.07%", "70.14%"]


def test_an_interval_that_spans_much_says_how_much_it_is_at_least() -> None:
    faster = replace(TIMED.step_time, verdict=Verdict.BETTER, change=-0.93, low=-0.99, high=-0.29)
    assert headline(replace(TIMED, step_time=faster)).endswith("14 times as fast (at least 1.4 times)")
    open_ended = replace(faster, verdict=Verdict.INCONCLUSIVE, low=-0.9, high=0.5)
    assert "interval -90 % to +50 %" in headline(replace(TIMED, step_time=open_ended))


@pytest.mark.parametrize(
    ("change", "low", "high", "told"),
    [
        (-0.5, -0.6, -0.3, "2.0 times as fast (1.4 to 2.5)"),
        (-0.95, -0.96, -0.9, "20 times as fast (10 to 25)"),
        (-0.5, None, None, "2.0 times as fast"),
        (-1.0, -1.0, -1.0, "10,000 times as fast (10,000 to 10,000)"),
        (-0.49, -0.6, -0.3, "-49 % (95 % interval -60 % to -30 %)"),
    ],
)
def test_from_twice_as_fast_on_a_factor_says_more_than_per_cent(change, low, high, told) -> None:
    faster = replace(TIMED.step_time, verdict=Verdict.BETTER, change=change, low=low, high=high)
    assert headline(replace(TIMED, step_time=faster)).endswith(told)


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


def test_the_icicle_says_what_became_of_each_part_by_its_colour_and_in_words() -> None:
    changes = ((100, 200), (100, 120), (100, 105), (120, 100), (0, 30), (300, 0), (100, 100))
    branches = tuple(
        MovedBranch(0, f"f{at}", at / 7, 1 / 7, before * 1_000, after * 1_000)
        for at, (before, after) in enumerate(changes)
    )
    page = Page(text := render_html(replace(TIMED, tree=MovedTree(("line",), False, branches))))
    hues = [rect["class"] for rect in page.shown("rect") if rect["class"].endswith(("longer", "shorter", "alike"))]
    legend, drawn = hues[:5], hues[5:]
    assert legend == ["much-shorter", "shorter", "alike", "longer", "much-longer"]
    assert drawn == ["much-longer", "alike", "alike", "alike", "alike", "much-shorter", "alike"]
    assert "f4: next to nothing before and 30.0 µs after, of a recorded step" in text


def test_without_a_tree_there_is_no_icicle() -> None:
    assert 'class="leaf"' not in render_html(TIMED)


def test_names_in_the_icicle_are_escaped() -> None:
    tree = MovedTree(("line",), False, (MovedBranch(0, "<script>x</script>", 0.0, 1.0, 100, 9_000_000),))
    text = render_html(replace(TIMED, tree=tree))
    assert "<script>x" not in text
    assert 'class="leaf"' in text


def test_where_nothing_changed_a_sentence_stands_in_place_of_a_grey_icicle() -> None:
    alike = MovedTree(("line",), False, (MovedBranch(0, "train.py:3", 0.0, 1.0, 1_000, 1_010),))
    page = Page(text := render_html(replace(TIMED, tree=alike)))
    assert 'class="leaf"' not in text
    assert "take as long as before (within 10 %" in page.text["p"]
    changed = MovedTree(("line",), False, (MovedBranch(0, "train.py:3", 0.0, 1.0, 1_000, 9_000_000),))
    assert "take as long as before" not in render_html(replace(TIMED, tree=changed))


def test_steps_beyond_the_axis_of_both_sides_are_one_sentence() -> None:
    steps = (13_000_000, 13_100_000, 13_200_000, 10**12)
    page = Page(
        render_html(
            replace(TIMED, **{side: replace(getattr(TIMED, side), step_ns=steps) for side in ("before", "after")})
        )
    )
    told = "Beyond the axis: 1 step before, up to 1,000 s; 1 step after, up to 1,000 s."
    assert told in page.text["p"]
