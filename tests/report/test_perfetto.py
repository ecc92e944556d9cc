"""The copy for Perfetto: tracks, slices and arrows, read by the rules of Perfetto's importer.

https://github.com/google/perfetto/blob/main/src/trace_processor/importers/json has these rules: events are taken in the
order of their times, at one time in that of the file; a slice stays open until an event of its thread begins at or
after its end; an arrow begins and ends at the innermost open slice of its thread.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profkit.core.errors import UsageError
from profkit.diagnosis.pipeline import diagnose_with_rows, read_facts
from profkit.findings.values import Diagnosis, Finding
from profkit.report import perfetto
from profkit.report.perfetto import write_perfetto
from profkit.run.directory import find_trace
from profkit.trace.events import Rows, Trace
from profkit.trace.kineto.reader import read_kineto
from tests.traces import Json, json_of, kernel, memory, op, python, rows_named, runtime, step

Arrow = tuple[Json, Json]
SHELL = shutil.which("trace_processor_shell")
RECORDED = sorted((Path(__file__).parents[2] / "traces" / "recorded").glob("*/*/*/"))


def parse(text: bytes) -> list[Json]:
    document = json.loads(text, parse_float=Decimal)
    events: list[Json] = document if isinstance(document, list) else document["traceEvents"]
    return events


def copy_of(
    folder: Path, diagnosis: Diagnosis, trace_text: bytes, marked: Sequence[Sequence[str]], name: str = "trace.json"
) -> list[Json]:
    """The events of the copy; ``marked`` names the events behind each finding."""
    source, target = folder / name, folder / "perfetto.json.gz"
    source.write_bytes(trace_text)
    trace = read_kineto(source)
    rows = [np.array(rows_named(trace, *names), dtype=np.int64) for names in marked]
    write_perfetto(diagnosis, trace, rows, source, target)
    return parse(gzip.decompress(target.read_bytes()))


def arrows_of(events: list[Json]) -> list[Arrow]:
    """The slices that each arrow of profkit leads from and to."""
    open_slices: dict[Any, list[tuple[Decimal, Json]]] = {}
    begun: dict[int, Json] = {}
    arrows = []
    timed = (event for event in events if event["ph"] in "Xsf")
    for event in sorted(timed, key=lambda event: Decimal(event["ts"])):
        here = open_slices.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "X":
            while here and here[-1][0] <= event["ts"]:
                here.pop()
            here.append((event["ts"] + Decimal(event["dur"]), event))
        elif event["ph"] == "s" and event["cat"] == "profkit":
            begun[event["id"]] = here[-1][1]
        elif event["cat"] == "profkit":
            arrows.append((begun[event["id"]], here[-1][1]))
    return arrows


def slices_of(events: list[Json]) -> list[Json]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == "profkit"]


def test_a_finding_is_a_track_with_slices_where_its_events_run(
    tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis
) -> None:
    events = copy_of(
        tmp_path,
        replace(full_diagnosis, findings=(leak,)),
        json_of([step(1, 0, 100), op("a", 10, 5), op("b", 12.5, 10), op("a", 30, 1.234), op("c", 50, 1)]),
        [["a", "b"]],
    )
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {2_000_000_001: "1. HIGH retained-graph at train.py:31"}
    slices = slices_of(events)
    assert {(one["name"], one["pid"], one["tid"]) for one in slices} == {
        ("retained-graph", 2_000_000_000, 2_000_000_001)
    }
    assert [(one["ts"], one["dur"]) for one in slices] == [
        (Decimal("10.000"), Decimal("12.500")),
        (Decimal("30.000"), Decimal("1.234")),
    ]
    assert slices[0]["args"] == {
        "message": leak.message,
        "cost": "5.30 ms per step (43 % of the step; likely 30 to 50 %); memory grows by 4.00 MB per step",
        "fix": "Append the number, not the graph: losses.append(loss.detach())",
        "where": "train.py:31 in train_step",
    }


def test_an_arrow_leads_to_the_event_and_not_to_a_nested_one(
    tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis
) -> None:
    events = copy_of(
        tmp_path,
        replace(full_diagnosis, findings=(leak,)),
        json_of(
            [
                python("train.py(3): f", 0, 100),
                op("a", 10, 20),
                op("inner", 10.001, 5),
                op("b", 40, 1),
                op("a", 60, 20),
                op("inner", 65, 5),
            ]
        ),
        [["a"]],
    )
    assert [(one["ts"], other["name"], other["ts"]) for one, other in arrows_of(events)] == [
        (10, "a", 10),
        (60, "a", 60),
    ]


def test_a_slice_of_many_events_has_an_arrow_to_each(tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis) -> None:
    launched = [
        runtime("cudaLaunchKernel", 5, 2, correlation=1),
        kernel("k", 20, 10, correlation=1),
        kernel("k", 25, 10, stream=8),
        kernel("k", 40, 1),
    ]
    events = copy_of(tmp_path, replace(full_diagnosis, findings=(leak,)), json_of(launched), [["k"]])
    assert [(one["ts"], one["dur"], other["tid"], other["ts"]) for one, other in arrows_of(events)] == [
        (20, 15, 7, 20),
        (20, 15, 8, 25),
        (40, 1, 7, 40),
    ]


def test_an_instant_has_a_slice_and_no_arrow(tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis) -> None:
    events = copy_of(
        tmp_path, replace(full_diagnosis, findings=(leak,)), json_of([op("a", 0, 9), memory(4, 64, 1)]), [["[memory]"]]
    )
    assert [(one["ts"], one["dur"]) for one in slices_of(events)] == [(4, Decimal("0.001"))]
    assert arrows_of(events) == []


def test_tracks_are_ranked_and_a_finding_without_events_has_an_empty_one(
    tmp_path: Path, full_diagnosis: Diagnosis
) -> None:
    events = copy_of(tmp_path, full_diagnosis, json_of([op("a", 1, 2), op("b", 5, 2)]), [["b"], [], ["a"]])
    order = {event["tid"]: event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"}
    assert list(order.values()) == [1, 2, 3]
    assert [order[one["tid"]] for one in slices_of(events)] == [1, 3]
    assert len({arrow["id"] for arrow in events if arrow["ph"] == "s"}) == 2


@pytest.mark.parametrize("thread", [7, "7", "stream 7"])
@pytest.mark.parametrize("base", [None, 1_790_000_000_000_000_000])
def test_times_and_threads_are_written_as_the_file_has_them(
    tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis, thread: int | str, base: int | None
) -> None:
    """Microseconds since 1970 with three decimals, which no float can represent."""
    text = json.dumps({"traceEvents": [{**op("a", 0, 2), "tid": thread, "ts": "AT"}], "baseTimeNanoseconds": base})
    events = copy_of(
        tmp_path,
        replace(full_diagnosis, findings=(leak,)),
        text.replace('"AT"', "1712908080123456.789").encode(),
        [["a"]],
    )
    assert [one["ts"] for one in slices_of(events)] == [Decimal("1712908080123456.789")]
    assert [(other["name"], other["tid"]) for _, other in arrows_of(events)] == [("a", thread)]


def test_the_process_number_of_the_copy_differs_from_those_in_the_trace(
    tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis
) -> None:
    text = json_of([{**op("a", 0, 2), "pid": 2_000_000_001}])
    events = copy_of(tmp_path, replace(full_diagnosis, findings=(leak,)), text, [["a"]])
    assert {one["pid"] for one in slices_of(events)} == {2_000_000_002}


def test_only_the_longest_of_many_events_are_drawn(
    tmp_path: Path, leak: Finding, full_diagnosis: Diagnosis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "MOST_SLICES", 3)
    monkeypatch.setattr(perfetto, "MOST_ARROWS", 2)
    text = json_of([op("a", 10 * number, 1 + number % 5) for number in range(10)])
    events = copy_of(tmp_path, replace(full_diagnosis, findings=(leak,)), text, [["a"]])
    assert [one["ts"] for one in slices_of(events)] == [30, 40, 90]
    assert [other["ts"] for _, other in arrows_of(events)] == [40, 90]


def test_hostile_text_stays_text_in_perfetto(
    tmp_path: Path, full_diagnosis: Diagnosis, hostile_finding: Finding
) -> None:
    events = copy_of(tmp_path, replace(full_diagnosis, findings=(hostile_finding,)), json_of([op("a", 1, 2)]), [["a"]])
    (one,) = slices_of(events)
    assert one["name"] == "<b>rule</b>"
    assert "\x1b" not in json.dumps(one["args"], ensure_ascii=False)


def test_the_trace_is_never_overwritten_by_its_copy(tmp_path: Path, empty_diagnosis: Diagnosis) -> None:
    source = tmp_path / "perfetto.json.gz"
    source.write_bytes(json_of([op("a", 1, 2)]))
    with pytest.raises(UsageError, match="would replace the trace"):
        write_perfetto(empty_diagnosis, read_kineto(source), [], source, source)
    assert source.read_bytes() == json_of([op("a", 1, 2)])


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path, empty_diagnosis: Diagnosis) -> None:
    source = tmp_path / "trace.json"
    source.write_bytes(json_of([op("a", 1, 2)]))
    trace = read_kineto(source)
    source.write_bytes(b"gone")
    with pytest.raises(Exception, match="neither JSON nor gzip"):
        write_perfetto(empty_diagnosis, trace, [], source, tmp_path / "perfetto.json.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


@pytest.fixture(scope="module", params=RECORDED, ids=lambda path: "-".join(path.parts[-2:]))
def recorded(request: pytest.FixtureRequest) -> tuple[Diagnosis, Trace, Sequence[Rows], Path]:
    facts = read_facts(request.param)
    source = find_trace(request.param)
    assert source is not None
    diagnosis, rows = diagnose_with_rows(facts)
    return diagnosis, facts.trace, rows, source


def test_in_recordings_every_arrow_leads_to_an_event_of_its_finding(
    tmp_path: Path, recorded: tuple[Diagnosis, Trace, Sequence[Rows], Path]
) -> None:
    diagnosis, trace, marked, source = recorded
    target = tmp_path / "perfetto.json.gz"
    write_perfetto(diagnosis, trace, marked, source, target)
    events = parse(gzip.decompress(target.read_bytes()))
    own = parse(gzip.decompress(source.read_bytes()))
    assert events[-len(own) :] == own
    begin_ns = trace.base_ns - trace.recording.clock_base_ns
    expected = {
        (finding.rule, trace.name_of(row), begin_ns + int(trace.events.start_ns[row]))
        for finding, rows in zip(diagnosis.findings, marked, strict=True)
        for row in rows.tolist()
    }
    found = [(one["name"], other["name"], int(1000 * other["ts"])) for one, other in arrows_of(events)]
    assert set(found) <= expected
    assert bool(found) == any(len(rows) for rows in marked)


@pytest.mark.skipif(SHELL is None, reason="Perfetto's trace_processor_shell is not on the PATH")
def test_the_trace_processor_finds_the_slices_and_the_arrows(
    tmp_path: Path, recorded: tuple[Diagnosis, Trace, Sequence[Rows], Path]
) -> None:
    diagnosis, trace, marked, source = recorded
    target, query = tmp_path / "perfetto.json.gz", tmp_path / "query.sql"
    write_perfetto(diagnosis, trace, marked, source, target)
    query.write_text(
        "select a.name as finding, b.name as event, b.ts as ts from flow join slice a on flow.slice_out = a.id "
        "join slice b on flow.slice_in = b.id where a.category = 'profkit' order by flow.id"
    )
    result = subprocess.run([str(SHELL), "-q", query, target], capture_output=True, text=True, check=True)
    found = [(row["finding"], row["event"]) for row in csv.DictReader(result.stdout.splitlines())]
    read = arrows_of(parse(gzip.decompress(target.read_bytes())))
    assert sorted(found) == sorted((one["name"], other["name"]) for one, other in read)
