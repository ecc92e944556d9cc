"""Reports on several ranks of one launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.findings.values import (
    CallSummary,
    Diagnosis,
    Finding,
    LaunchSummary,
    OwnTime,
    PipelineSummary,
    RankDetails,
    RankSummary,
    StageSummary,
)
from profkit.report.html.page import render_html
from profkit.report.html.ranks import MOST_ROWS, render_ranks
from profkit.report.json import parse_json, render_json
from profkit.report.markdown import render_markdown
from profkit.report.ranks_wording import launch_lines
from profkit.report.text import render_text
from tests.report.conftest import launch_of
from tests.report.test_html import Page

LINES = [
    "8 ranks on 2 hosts were recorded, a step takes 120 ms, of which the median rank waits 37.0 ms (31 %) for others",
    (
        "Rank 3 (host b) is late in 9 of 10 steps, by 41.0 ms each: it waits for its DataLoader, train.py:31; 7 other "
        "ranks wait for it"
    ),
    (
        "Communication itself delays the median rank by 2.00 ms a step (1.7 %); group default_pg (8 ranks) moves 100 "
        "MB a step in 12 calls, at 10.0 GB/s"
    ),
]


def _launch_of(diagnosis: Diagnosis) -> LaunchSummary:
    assert diagnosis.launch is not None
    return diagnosis.launch


def test_one_line_says_who_is_late_how_often_and_why(launched_diagnosis: Diagnosis) -> None:
    assert launch_lines(_launch_of(launched_diagnosis)) == LINES


def test_at_most_five_things_are_named(launched_diagnosis: Diagnosis) -> None:
    launch = _launch_of(launched_diagnosis)
    late = tuple(replace(launch.ranks[3], rank=at, caused_ns=at * 10_000_000) for at in range(1, 9))
    lines = launch_lines(replace(launch, ranks=late))
    assert len(lines) == 5
    assert [line[:6] for line in lines[1:4]] == ["Rank 8", "Rank 7", "Rank 6"]


def test_for_a_launch_without_a_late_rank_the_report_says_so(launched_diagnosis: Diagnosis) -> None:
    launch = _launch_of(launched_diagnosis)
    small = 3_599_999  # of 120 ms: a hair less than 3 %
    even = tuple(replace(one, caused_ns=small, waited_ns=small, late_steps=0) for one in launch.ranks)
    assert launch_lines(replace(launch, ranks=even))[1] == "No rank keeps others waiting for 3.0 % of a step or more"
    at_limit = (*even[:-1], replace(even[-1], caused_ns=small + 1, late_steps=1, late_ns=36_000_000, kept_waiting=7))
    assert launch_lines(replace(launch, ranks=at_limit))[1] == (
        "Rank 7 (host b) is late in 1 of 10 steps, by 36.0 ms: none of its recorded work takes that much longer; "
        "7 other ranks wait for it"
    )


def test_ranks_that_share_a_wait_are_named_by_how_late_they_are(launched_diagnosis: Diagnosis) -> None:
    """Two ranks are late by 6 of 120 ms, so the share of each is 2.5 % of the step."""
    launch = _launch_of(launched_diagnosis)
    late = replace(launch.ranks[3], late_steps=10, late_ns=6_000_000, caused_ns=3_000_000)
    ranks = (*launch.ranks[:2], late, replace(late, rank=5), *launch.ranks[6:])
    assert launch_lines(replace(launch, ranks=ranks))[1:3] == [
        f"Rank {rank} (host b) is late in 10 of 10 steps, by 6.00 ms each: it waits for its DataLoader, train.py:31; "
        "7 other ranks wait for it, and 3.00 ms a step is its share of that wait"
        for rank in (3, 5)
    ]


def _with_pipelines(launch: LaunchSummary) -> LaunchSummary:
    stages = (StageSummary(0, 40_000_000, 50_000_000), StageSummary(1, 80_000_000, 10_000_000))
    one = PipelineSummary(stages, 4, 0.25, 0.2)
    return replace(launch, pipelines=(replace(one, idle_fraction=0.1), one))


def test_the_idle_time_of_the_most_idle_pipeline_is_stated_with_its_stage(launched_diagnosis: Diagnosis) -> None:
    launch = _with_pipelines(_launch_of(launched_diagnosis))
    late = tuple(replace(launch.ranks[3], rank=at, caused_ns=at * 10_000_000) for at in range(1, 9))
    lines = launch_lines(replace(launch, ranks=late))
    assert [line[:6] for line in lines] == ["8 rank", "Rank 8", "Rank 7", "2 pipe", "Commun"]
    assert lines[3] == (
        "2 pipelines; the one of ranks 0, 1 takes 4 micro-batches a step. A stage waits for the stages before "
        "or after it for 25 % of it (with equal stages: 20 %). Rank 1 works longest, 80.0 ms against 60.0 ms for "
        "the mean stage"
    )


def test_with_a_pipeline_the_report_does_not_say_that_nobody_waits(launched_diagnosis: Diagnosis) -> None:
    launch = _with_pipelines(_launch_of(launched_diagnosis))
    even = tuple(replace(one, caused_ns=0) for one in launch.ranks)
    assert not any("keeps others waiting" in line for line in launch_lines(replace(launch, ranks=even)))


def test_the_page_has_a_table_of_the_stages(launched_diagnosis: Diagnosis) -> None:
    launch = _launch_of(launched_diagnosis)
    page = str(render_ranks(_with_pipelines(launch)))
    assert "<td>2</td><td>4</td><td>2</td><td>1</td><td>80.0 ms</td><td>10.0 ms</td>" in page
    assert "Pipelines" not in str(render_ranks(launch))
    diagnosis = replace(launched_diagnosis, launch=_with_pipelines(launch))
    assert parse_json(render_json(diagnosis).encode()).launch == diagnosis.launch


def test_unrecorded_ranks_are_counted(launched_diagnosis: Diagnosis) -> None:
    launch = replace(_launch_of(launched_diagnosis), world_size=4096)
    assert launch_lines(launch)[0].startswith("8 of 4,096 ranks on 2 hosts were recorded, ")


def test_one_rank_without_steps_is_only_counted() -> None:
    assert launch_lines(LaunchSummary(2, (RankSummary(1, "b.json"),))) == ["1 of 2 ranks was recorded"]
    assert launch_lines(LaunchSummary(-1, ())) == ["0 ranks were recorded"]


def test_text_and_markdown_have_the_same_words_and_notes(launched_diagnosis: Diagnosis) -> None:
    wide = render_text(launched_diagnosis, width=200)
    assert wide.split("\nThe ranks\n")[1].split("\n\n")[0].splitlines() == [
        f"- {line}" for line in (*LINES, *_launch_of(launched_diagnosis).notes)
    ]
    markdown = render_markdown(launched_diagnosis)
    assert f"### The ranks\n\n- {LINES[0]}\n- {LINES[1]}\n" in markdown


def test_many_notes_are_counted_in_a_terminal_and_kept_on_the_page(launched_diagnosis: Diagnosis) -> None:
    notes = tuple(f"rank {at}: no trace" for at in range(9))
    diagnosis = replace(launched_diagnosis, launch=replace(_launch_of(launched_diagnosis), notes=notes))
    for text in (render_text(diagnosis), render_markdown(diagnosis)):
        assert "rank 4: no trace" in text
        assert "rank 5: no trace" not in text
        assert "and 4 more notes in diagnosis.json" in text
    assert "rank 8: no trace" in render_html(diagnosis)


def test_the_launch_is_written_on_one_line_and_reads_back(launched_diagnosis: Diagnosis) -> None:
    text = render_json(launched_diagnosis)
    assert parse_json(text.encode()) == launched_diagnosis
    (line,) = [line for line in text.splitlines() if line.startswith('  "launch"')]
    assert line.startswith('  "launch": {"world_size":8,"ranks":[{"rank":0')


def test_the_page_draws_each_rank_in_each_step(launched_diagnosis: Diagnosis) -> None:
    page = Page(render_html(launched_diagnosis))
    rows = [one for one in page.shown("svg") if (one.get("aria-label") or "").startswith("rank ")]
    assert [one["aria-label"] for one in rows[2:4]] == [
        "rank 2: in one step others wait up to 0 for it, and it waits up to 41.0 ms",
        "rank 3: in one step others wait up to 41.0 ms for it, and it waits up to 0",
    ]
    assert len(rows) == 8
    late = [one["d"] for one in page.shown("path") if one.get("class") == "late"]
    assert late[3] == "M0 63h1v-63h9v63z"
    assert "A table of the ranks" in page.text["summary"]


def test_a_program_of_one_process_has_no_section_on_ranks(drawn_diagnosis: Diagnosis) -> None:
    assert render_ranks(drawn_diagnosis.launch) == ""
    assert "The ranks" not in render_html(drawn_diagnosis)


def test_the_page_of_thousands_of_ranks_is_small(launched_diagnosis: Diagnosis) -> None:
    text = render_ranks(launch_of(4096))
    assert len(text) < 500_000
    assert text.count('<td data-sort="NVIDIA') == MOST_ROWS
    assert text.count('class="rank-page"') == 16
    assert "3,840 more are in diagnosis.json" in text
    assert 'aria-label="rank 3: in one step others wait up to 41.0 ms for it' in text
    assert 'aria-label="ranks 0 to 63: in one step others wait up to 41.0 ms for it' in text


def test_a_rank_without_a_page_has_a_command() -> None:
    text = render_ranks(launch_of(512))
    assert "A page for 16 of the ranks" in text
    assert "Of 512 ranks, these are the ones that others wait for longest" in text
    assert "<code>profkit diagnose rank16</code> judges the code of another" in text
    assert "judges the code of another" not in render_ranks(launch_of(64))


def test_a_launch_saved_before_there_were_details_has_no_pages() -> None:
    launch = launch_of(4)
    text = render_ranks(replace(launch, ranks=tuple(replace(one, details=None) for one in launch.ranks)))
    assert "A page for" not in text
    assert 'href="#' not in text


def test_a_rank_in_an_object_store_has_no_command() -> None:
    launch = launch_of(4)
    stored = tuple(replace(one, source="s3://bucket/rank0.json.gz") for one in launch.ranks)
    assert "profkit diagnose" not in render_ranks(replace(launch, ranks=stored))


def test_a_command_is_quoted_for_the_shell() -> None:
    launch = launch_of(4)
    odd = tuple(replace(one, source="my runs/rank0; rm -r x") for one in launch.ranks)
    assert "profkit diagnose &#39;my runs/rank0; rm -r x&#39;" in render_ranks(replace(launch, ranks=odd))


def _notes_on(launch: LaunchSummary, rank: int) -> str:
    """The notes below the heading on the page of a rank."""
    page = render_ranks(launch).split(f'id="rank-{rank}"')[1].split("</details>")[0]
    return page.partition("<h3>Notes</h3>")[2]


def test_a_page_shows_only_the_notes_on_its_own_rank() -> None:
    launch = launch_of(8)
    assert _notes_on(launch, 0) == ""
    assert "Its clock is 86,400 s ahead of rank 0&#39;s" in _notes_on(launch, 7)
    broken, details = launch.ranks[1], launch.ranks[1].details
    assert details is not None
    light = replace(details, own=(OwnTime("unrecorded", 81_000_000, 81_000_000),), compared=0.0)
    ranks = (launch.ranks[0], replace(broken, steps=4, notes=("cut off",), details=light), *launch.ranks[2:])
    notes = (*launch.notes, "rank1: its collectives do not fit those of others", "rank10: another's")
    notes_shown = _notes_on(replace(launch, ranks=ranks, notes=notes, world_size=64), 1)
    for words in (
        "cut off",
        "its collectives do not fit",
        "4 of 10 steps were recorded",
        "8 of 64 ranks",
        "Only collectives and steps",
        "None of its collectives",
    ):
        assert words in notes_shown
    assert "another&#39;s" not in notes_shown


def test_ranks_of_one_host_share_a_clock() -> None:
    launch = launch_of(4)
    details = launch.ranks[1].details
    assert details is not None
    late_to_notice = replace(launch.ranks[1], details=replace(details, clock_behind_ns=5_000_000))
    launch = replace(launch, world_size=2)
    assert _notes_on(replace(launch, ranks=(launch.ranks[0], late_to_notice)), 1) == ""
    elsewhere = replace(late_to_notice, host="c")
    assert "5.00 ms behind rank 0" in _notes_on(replace(launch, ranks=(launch.ranks[0], elsewhere)), 1)


def test_hostile_names_of_hosts_and_groups_are_shown_as_text(
    launched_diagnosis: Diagnosis, hostile_finding: Finding
) -> None:
    attack, launch = hostile_finding.message, _launch_of(launched_diagnosis)
    place = hostile_finding.location
    details = RankDetails(
        step_ns=1,
        own=(OwnTime(attack, 1, 1, place),),
        calls=(CallSummary(attack, attack, 8, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, place),),
    )
    ranks = tuple(
        replace(
            one,
            host=attack,
            device=attack,
            source=attack,
            cause=attack,
            notes=(attack,),
            location=place,
            details=details,
        )
        for one in launch.ranks
    )
    groups = tuple(replace(one, name=attack) for one in launch.groups)
    diagnosis = replace(launched_diagnosis, launch=replace(launch, ranks=ranks, groups=groups, notes=(attack,)))
    page = Page(render_html(diagnosis))
    assert page.names().isdisjoint({"i", "u"})
    assert len(page.shown("script")) == 1
    for text in (render_text(diagnosis), render_markdown(diagnosis)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "<script>" not in render_markdown(diagnosis).replace("`", "")


@pytest.mark.parametrize("levels", ["", "\x00", "////////////////////////////////"])
def test_a_picture_with_missing_columns_is_drawn_as_far_as_possible(launched_diagnosis: Diagnosis, levels: str) -> None:
    launch = _launch_of(launched_diagnosis)
    assert launch.picture is not None
    rows = tuple(replace(row, caused=levels) for row in launch.picture.rows)
    text = render_ranks(replace(launch, picture=replace(launch.picture, rows=rows)))
    assert text.partition("A table of the ranks")[0].count('class="late"') == 9
