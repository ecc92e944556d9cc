"""Reports on a memory snapshot."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.verdict import conclude
from profkit.findings.values import (
    DeviceMemory,
    Diagnosis,
    Location,
    MemoryLine,
    MemoryPart,
    MemorySeries,
    MemoryTimeline,
    RunSummary,
    Timing,
    VerdictKind,
)
from profkit.report import render
from profkit.report.json import parse_json
from profkit.report.wording import memory_lines

GPU = DeviceMemory(
    device=0,
    allocated_bytes=2_000_000_000,
    reserved_bytes=5_000_000_000,
    inactive_split_bytes=400_000_000,
    cached_bytes=2_500_000_000,
    split_bytes=500_000_000,
    peak_bytes=4_000_000_000,
    reserved_peak_bytes=5_000_000_000,
    older_bytes=0,
    history_entries=900,
    peak_ns=3_000_000,
    history_ns=9_000_000,
    parts=(MemoryPart("activations", 3_000_000_000, 0.75), MemoryPart("gradients", 1_000_000_000, 0.25)),
    lines=(
        MemoryLine(3_000_000_000, 0.75, 24, Location("/home/me/model.py", 30, "forward", "x = block(x)")),
        MemoryLine(1_000_000_000, 0.25, 1),
    ),
)
TEXT = """\
No fault found in the memory; the peak is 4.00 GB, 75 % of it activations, and
5.00 GB reserved at most

What the memory holds at its peak
   peak     4.00 GB, 3.00 ms into a history of 9.00 ms; 5.00 GB reserved at most
   now      2.00 GB held of 5.00 GB reserved
   free     2.50 GB in whole segments, ready for any request or the driver; 500
            MB in gaps inside used ones

activations  3.00 GB  75 %  ##########
gradients    1.00 GB  25 %  ####

The lines that allocated it:
 3.00 GB  model.py:30, 24 blocks
          x = block(x)
 1.00 GB  no line recorded, 1 block
"""


@pytest.fixture
def diagnosis() -> Diagnosis:
    found = Diagnosis(RunSummary((), None, None, None, None), Timing(0, None, ""), (), {}, (), memory=(GPU,))
    return replace(found, verdict=conclude(found))


def test_the_text_is_about_memory_alone(diagnosis):
    assert render(diagnosis, "text") == TEXT


def test_the_verdict_finds_no_fault_although_there_are_no_steps(diagnosis):
    assert diagnosis.verdict.kind is VerdictKind.NOTHING_FOUND


def test_without_a_history_no_peak_is_stated(diagnosis):
    bare = replace(GPU, history_entries=0, peak_ns=None, history_ns=None)
    text = render(replace(diagnosis, memory=(bare,), verdict=conclude(replace(diagnosis, memory=(bare,)))), "text")
    assert "peak" not in text
    assert text.startswith("No fault found in the memory; what is held is 4.00 GB")


def test_each_of_several_devices_is_described(diagnosis):
    both = (GPU, replace(GPU, device=3, peak_bytes=6_000_000_000))
    text = render(replace(diagnosis, memory=both, verdict=conclude(replace(diagnosis, memory=both))), "text")
    assert "the peak is 6.00 GB on GPU 3" in text
    assert "What the memory of GPU 0 holds at its peak" in text
    assert "What the memory of GPU 3 holds at its peak" in text


def test_markdown_states_the_same(diagnosis):
    text = render(diagnosis, "markdown")
    assert "| activations | 3.00 GB | 75 % |" in text
    assert "- 3.00 GB `model.py:30, 24 blocks` `x = block(x)`" in text
    assert "### What the memory holds at its peak" in text


def test_html_states_the_same(diagnosis):
    page = render(diagnosis, "html")
    assert "<li>activations <b>3.00 GB, 75 %</b></li>" in page
    assert "<code>model.py:30, 24 blocks</code><pre><code>x = block(x)</code></pre>" in page


def test_json_reads_back_the_same(diagnosis):
    assert parse_json(render(diagnosis, "json").encode()) == diagnosis


@pytest.mark.parametrize("format_name", ["text", "markdown", "html"])
def test_hostile_names_are_escaped(diagnosis, format_name):
    place = Location("/tmp/\x1b[2Jx<script>.py", 3, "f", "y = '\x1b[31m<img src=x>'")
    hostile = replace(GPU, lines=(MemoryLine(10, 0.1, 1, place),))
    text = render(replace(diagnosis, memory=(hostile,)), format_name)
    assert "\x1b" not in text
    assert format_name != "html" or ("x<script>" not in text and "<img" not in text)


TIMELINE = MemoryTimeline(
    entries=(0, 450, 900),
    reserved_bytes=(1_000_000_000, 5_000_000_000, 5_000_000_000),
    parts=(
        MemorySeries("gradients", (0, 1_000_000_000, 1_000_000_000)),
        MemorySeries("activations", (0, 3_000_000_000, 1_000_000_000)),
    ),
)


def test_the_picture_stacks_the_held_memory(diagnosis):
    """The peak of 4 of 5 GB is at four fifths of the height of 300 and in the middle of the width beside the labels."""
    picture = render(replace(diagnosis, memory=(replace(GPU, timeline=TIMELINE),)), "memory-timeline")
    root = ET.fromstring(picture)
    gradients, activations = (one.attrib["points"].split() for one in root.iter("{http://www.w3.org/2000/svg}polygon"))
    assert gradients[1] == "485.0,264.0"
    assert activations[1] == "485.0,84.0"
    assert activations[4] == gradients[1], "one lies on the other"
    assert "activations, at most 3.00 GB" in picture
    assert "peak 4.00 GB" in picture


def test_the_page_shows_the_picture_and_allows_nothing_for_it(diagnosis):
    page = render(replace(diagnosis, memory=(replace(GPU, timeline=TIMELINE),)), "html")
    picture = page[(begin := page.index('aria-label="Memory over')) : page.index("</svg>", begin)]
    assert "<polygon" in picture
    assert "<text" not in picture  # what is written beside it stays legible on a phone
    assert '<rect fill="#0072b2" width="100%" height="100%" rx="2"/></svg>activations' in page
    assert "style=" not in picture
    assert "<script" not in picture


def test_pictures_of_several_devices_stand_below_each_other(diagnosis):
    drawn = replace(GPU, timeline=TIMELINE)
    picture = render(replace(diagnosis, memory=(drawn, replace(drawn, device=1))), "memory-timeline")
    assert len(ET.fromstring(picture).findall("{http://www.w3.org/2000/svg}g")) == 2


def test_a_hostile_label_is_escaped_in_the_picture(diagnosis):
    hostile = replace(TIMELINE, parts=(MemorySeries("<script>x</script>\x1b[2J", (0, 1, 1)),))
    picture = render(replace(diagnosis, memory=(replace(GPU, timeline=hostile),)), "memory-timeline")
    assert "<script" not in picture
    assert "\x1b" not in picture


def test_without_a_history_there_is_no_picture(diagnosis):
    with pytest.raises(UsageError, match="no memory snapshot with a history"):
        render(diagnosis, "memory-timeline")


def test_the_line_of_a_library_follows_the_one_that_calls_it():
    inside = Location("/usr/lib/python3/site-packages/transformers/activations.py", 66, "forward")
    line = MemoryLine(3_000, 0.75, 24, Location("/home/me/model.py", 30, "forward"), inside=inside, inside_bytes=2_000)
    ((_, where, _),) = memory_lines(replace(GPU, lines=(line,)))
    assert where == "model.py:30, 24 blocks; 2.00 kB at transformers/activations.py:66"
    ((_, where, _),) = memory_lines(replace(GPU, lines=(MemoryLine(10, 0.1, 1, why="older than the history"),)))
    assert where == "older than the history, 1 block"
