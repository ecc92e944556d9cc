"""The reader of Nsight Systems exports: their tables become the events of a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.core.errors import UnreadableInput
from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose, diagnose_path, read_facts
from profkit.trace.events import NONE, Category, Trace
from profkit.trace.limits import EMPTY_BYTES, EVENT_BYTES, MEMORY_LIMIT
from profkit.trace.reading import read_trace
from tests.trace.exports import PROCESS, THREAD, Table, calls, copies, export_of, kernels, ranges, strings, write_export
from tests.traces import busy_fraction

KERNEL, MEMCPY, MEMSET = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))
RUNTIME, GRAPH, OVERHEAD = (f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("RUNTIME", "GRAPH_TRACE", "OVERHEAD"))
NAMES = strings(cudaLaunchKernel_v7000=1, sgemm=2, cudaStreamSynchronize_v3020=3, secret_of_the_environment=4)
WHOLE = {
    "StringIds": NAMES,
    KERNEL: kernels((1200, 1800, 9, 2)),
    MEMCPY: copies((1900, 1950, 10, 4096, 1, 1, 2)),
    MEMSET: ("start INTEGER, end INTEGER, globalPid INTEGER, bytes INTEGER", [(1960, 1970, PROCESS, 64)]),
    RUNTIME: calls((1100, 1150, 9, 1), (1300, 1990, 12, 3)),
    "NVTX_EVENTS": ranges((1050, 2050, "training")),
}


def listed(trace: Trace) -> list[tuple[str, int, int]]:
    """Name, start and duration of the events in the order of their start."""
    events = trace.events
    rows = sorted(range(len(events)), key=lambda row: int(events.start_ns[row]))
    return [(trace.name_of(row), int(events.start_ns[row]), int(events.duration_ns[row])) for row in rows]


def categories(trace: Trace) -> dict[str, Category]:
    return {trace.name_of(row): Category(trace.events.category[row]) for row in range(len(trace.events))}


def row_of(trace: Trace, name: str) -> int:
    (row,) = np.flatnonzero(trace.named(name))
    return int(row)


def test_tables_become_the_events_that_the_pytorch_profiler_would_record():
    trace = export_of(WHOLE)
    assert listed(trace) == [
        ("training", 0, 1000),
        ("cudaLaunchKernel", 50, 50),
        ("sgemm", 150, 600),
        ("cudaStreamSynchronize", 250, 690),
        ("Memcpy HtoD (Pinned -> Device)", 850, 50),
        ("Memset (Device)", 910, 10),
    ]
    assert categories(trace) == {
        "training": Category.ANNOTATION,
        "cudaLaunchKernel": Category.RUNTIME,
        "sgemm": Category.KERNEL,
        "cudaStreamSynchronize": Category.RUNTIME,
        "Memcpy HtoD (Pinned -> Device)": Category.MEMCPY,
        "Memset (Device)": Category.MEMSET,
    }
    assert (trace.base_ns, trace.health) == (1050, ())


def test_the_columns_hold_what_the_tables_say():
    trace = export_of(WHOLE)
    events, copy, fill = trace.events, row_of(trace, "Memcpy HtoD (Pinned -> Device)"), row_of(trace, "Memset (Device)")
    assert (events.size_bytes[copy], events.size_bytes[fill]) == (4096, 64)
    assert (events.correlation[copy], events.correlation[fill]) == (10, NONE)
    kernel, call = row_of(trace, "sgemm"), row_of(trace, "cudaLaunchKernel")
    lanes = [trace.lanes[events.lane[row]] for row in (kernel, call)]
    assert [(lane.process, lane.thread, lane.on_device) for lane in lanes] == [("0", "7", True), ("111", "112", False)]
    assert trace.recording.devices == ()


def test_kernels_are_traced_back_to_their_launch_and_its_operator():
    names = {**WHOLE, "NVTX_EVENTS": ranges((1050, 2050, "training"), (1090, 1160, "aten::mm, op_id = 7"))}
    facts = Facts(export_of(names))
    work = facts.launches.work.tolist().index(row_of(facts.trace, "sgemm"))
    assert facts.launches.call[work] == row_of(facts.trace, "cudaLaunchKernel")
    assert facts.launches.operator[work] == row_of(facts.trace, "aten::mm")
    assert [facts.trace.name_of(row) for row in facts.waits.rows] == ["cudaStreamSynchronize"]


@pytest.mark.parametrize(
    ("text", "name", "category", "sequence"),
    [
        ("aten::mul, op_id = 317173", "aten::mul", Category.OPERATOR, NONE),
        ("aten::mul, seq = 5, op_id = 3, sizes = [[4], []], input_op_ids = [(2,0)]", "aten::mul", Category.OPERATOR, 5),
        ("aten::mul", "aten::mul", Category.OPERATOR, NONE),
        ("MulBackward0, seq = 5, op_id = 8", "MulBackward0", Category.OPERATOR, 5),
        (
            "autograd::engine::evaluate_function: MulBackward0, op_id = 9",
            "autograd::engine::evaluate_function: MulBackward0",
            Category.OPERATOR,
            NONE,
        ),
        ("Optimizer.step#SGD.step, op_id = 4", "Optimizer.step#SGD.step", Category.ANNOTATION, NONE),
        ("forward, op_id = 4", "forward", Category.ANNOTATION, NONE),
        ("load, then train", "load, then train", Category.ANNOTATION, NONE),
        ("MyBackward", "MyBackward", Category.ANNOTATION, NONE),
        ("aten::mul, seq = x", "aten::mul", Category.OPERATOR, 0),
    ],
)
def test_ranges_of_pytorch_are_operators_and_others_annotations(text, name, category, sequence):
    trace = export_of({"NVTX_EVENTS": ranges((0, 10, text))})
    assert categories(trace) == {name: category}
    assert trace.events.sequence.tolist() == [sequence]


def test_the_text_of_a_range_may_be_in_the_table_of_strings():
    columns, _ = ranges()
    rows = [(0, 10, THREAD, 59, None, 2), (20, 30, THREAD, 59, None, 99), (40, 50, THREAD, 59, "own", 2)]
    trace = export_of({"StringIds": NAMES, "NVTX_EVENTS": (columns, rows)})
    assert listed(trace) == [("sgemm", 0, 10), ("own", 40, 10)]


def test_only_nvtx_ranges_are_read_and_unfinished_ones_are_counted():
    columns, rows = ranges((0, 100, "whole"), (5, None, "never ended"))
    others = [(7, None, THREAD, 34, "a mark", None), (1, None, THREAD, 75, "NCCL", None)]
    trace = export_of({"NVTX_EVENTS": (columns, [*rows, *others])})
    assert listed(trace) == [("whole", 0, 100)]
    assert trace.health == ("left out, because unreadable or without a usable time: 1 event",)


def test_ranges_that_need_not_nest_have_their_own_lane():
    columns, rows = ranges((0, 50, "aten::mul"))
    trace = export_of({"NVTX_EVENTS": (columns, [*rows, (20, 90, THREAD, 60, "async", None)])})
    assert [lane.thread for lane in trace.lanes] == ["112", "112, ranges that need not nest"]
    assert Facts(trace).tree.overlapping == 0


def test_steps_come_from_ranges():
    numbered = export_of({"NVTX_EVENTS": ranges(*((100 * n, 100 * n + 90, f"step {n}") for n in range(3)))})
    assert Facts(numbered).steps.source == "the program's numbered ranges"
    assert (len(Facts(numbered).steps), Facts(numbered).steps.median_ns) == (3, 90)
    alike = export_of({"NVTX_EVENTS": ranges(*((100 * n, 100 * n + 90, "train") for n in range(5)))})
    assert Facts(alike).steps.source == "a range that repeats"
    assert Facts(alike).steps.median_ns == 100
    marked = export_of({"NVTX_EVENTS": ranges(*((100 * n, 100 * n + 90, f"ProfilerStep#{n}") for n in range(3)))})
    assert Facts(marked).steps.source == "the profiler's step marks"


@pytest.mark.parametrize(
    ("direction", "source", "target", "name"),
    [
        (1, 0, 2, "Memcpy HtoD (Pageable -> Device)"),
        (2, 2, 1, "Memcpy DtoH (Device -> Pinned)"),
        (8, 2, 2, "Memcpy DtoD (Device -> Device)"),
        (10, 2, 2, "Memcpy PtoP (Device -> Device)"),
        (11, 4, 2, "Memcpy HtoD (Managed -> Device)"),
        (99, 0, 2, "Memcpy Unknown (Pageable -> Device)"),
        (1, None, None, "Memcpy HtoD"),
        (-5, "x", 2, "Memcpy Unknown"),
    ],
)
def test_copies_are_named_as_by_the_pytorch_profiler(direction, source, target, name):
    assert listed(export_of({MEMCPY: copies((0, 5, 1, 8, direction, source, target))})) == [(name, 0, 5)]


def test_kinds_of_memory_follow_the_enumeration_of_the_export():
    labels = ("id INTEGER, name TEXT, label TEXT", [(7, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable")])
    trace = export_of({MEMCPY: copies((0, 5, 1, 8, 1, 7, 2)), "ENUM_CUDA_MEM_KIND": labels})
    assert trace.names == ("Memcpy HtoD (Pageable -> Device)",)


def test_a_graph_recorded_as_a_whole_is_device_work_labelled_as_such():
    columns, _ = kernels()
    rows = [(100 * n, 100 * n + 80, PROCESS, n + 1, 0, 1, 7, 3, 0) for n in range(2)]
    trace = export_of(
        {
            "StringIds": NAMES,
            GRAPH: (columns.replace("demangledName", "graphId"), rows),
            RUNTIME: calls((0, 5, 1, 1), (90, 95, 2, 1)),
        }
    )
    facts = Facts(trace)
    assert categories(trace)["CUDA graph 3"] == Category.KERNEL
    assert facts.device.busy.total_ns == 160
    assert facts.launches.unlaunched == 0
    assert trace.health[0].startswith("2 launches of CUDA graphs stand for one kernel each: ")


def test_the_kernels_of_a_graph_launch_share_its_call():
    tables = {"StringIds": NAMES, KERNEL: kernels((10, 20, 5, 2), (20, 30, 5, 2)), RUNTIME: calls((0, 5, 5, 1))}
    trace = export_of(tables)
    facts = Facts(trace)
    assert facts.launches.call.tolist() == [row_of(trace, "cudaLaunchKernel")] * 2


def test_the_process_with_most_device_work_is_read():
    other = PROCESS + (1 << 24)
    columns, rows = kernels((0, 100, 1, 2))
    _, more = kernels((50, 250, 1, 2), process=other, device=1)
    _, of_both = calls((0, 5, 1, 1))
    tables = {
        "StringIds": NAMES,
        KERNEL: (columns, [*rows, *more]),
        RUNTIME: (calls()[0], [*of_both, (40, 45, other | 9, 1, 1)]),
    }
    trace = export_of(tables)
    assert listed(trace) == [("cudaLaunchKernel", 0, 5), ("sgemm", 10, 200)]
    assert trace.health == (
        "the export holds 2 processes: the one with most work on the GPUs is judged, 1 other process is left out",
    )


def test_an_export_without_process_ids_is_read_completely():
    trace = export_of(
        {"StringIds": NAMES, KERNEL: kernels((10, 20, 1, 2), process=None), RUNTIME: calls((0, 5, 1, 1), thread=3)}
    )
    assert listed(trace) == [("cudaLaunchKernel", 0, 5), ("sgemm", 10, 10)]


def test_work_of_profiler_and_driver_has_its_own_lane():
    overhead = ("start INTEGER, end INTEGER, globalTid INTEGER, overheadType INTEGER", [(1120, 1180, THREAD, 8)])
    trace = export_of({**WHOLE, OVERHEAD: overhead})
    row = row_of(trace, "Command Buffer Full")
    assert trace.events.category[row] == Category.OTHER
    assert trace.lanes[trace.events.lane[row]].thread == "112, profiler and driver"


def test_the_environment_is_neither_read_nor_shown():
    secret = "secret_of_the_environment"
    tables = {
        **WHOLE,
        "TARGET_INFO_SYSTEM_ENV": ("name TEXT, value TEXT", [("TOKEN", secret)]),
        "ProcessStreams": ("contentId INTEGER", [(4,)]),
        "META_DATA_CAPTURE": ("name TEXT, value TEXT", [("command", secret)]),
    }
    trace = export_of(tables)
    assert secret not in repr((trace.names, trace.texts, trace.lanes, trace.recording, trace.health))
    assert secret not in str(diagnose(Facts(trace)))


def test_rules_about_operators_are_skipped_and_rules_about_the_device_judge():
    bound = {
        "StringIds": NAMES,
        KERNEL: kernels(*((100_000 * n + 40_000, 100_000 * n + 60_000, n + 1, 2) for n in range(200))),
        RUNTIME: calls(*((100_000 * n, 100_000 * n + 30_000, n + 1, 1) for n in range(200))),
    }
    found = diagnose(Facts(export_of(bound)))
    assert found.skipped["single-tensor-optimizer"] == (
        "an Nsight Systems export holds no operators of the host, unless the program ran under "
        "torch.autograd.profiler.emit_nvtx()"
    )
    assert found.skipped["activation-dominated-peak"].startswith("an Nsight Systems export holds no memory events")
    assert [finding.rule for finding in found.findings] == ["launch-bound"]
    assert "host-sync-in-step" not in found.skipped


def test_an_export_is_diagnosed_like_any_trace(tmp_path):
    found = diagnose_path(write_export(tmp_path / "export", WHOLE))
    assert found.run.device == "a GPU that the trace does not name"
    assert found.timing.step_time_ns == 1000


def test_waits_are_found_without_operators():
    drained = {
        "StringIds": NAMES,
        KERNEL: kernels(*((10_000 * n + 1000, 10_000 * n + 6000, n + 1, 2) for n in range(40))),
        RUNTIME: calls(
            *((10_000 * n, 10_000 * n + 500, n + 1, 1) for n in range(40)),
            *((10_000 * n + 600, 10_000 * n + 6100, None, 3) for n in range(40)),
        ),
    }
    numbered = ranges(*((100_000 * n, 100_000 * n + 100_000, f"step {n}") for n in range(4)))
    (finding,) = diagnose(Facts(export_of({**drained, "NVTX_EVENTS": numbered}))).findings
    assert finding.rule == "host-sync-in-step"
    assert finding.evidence["waits_per_step"] == 10
    assert finding.evidence["waited_ns_per_step"] == 55_000


def test_the_transfer_bound_recording_moves_the_bytes_in_its_readme(corpus):
    facts = Facts(read_trace(corpus / "nsys" / "h100_2gpu_1s.sqlite"))
    events = facts.trace.events
    sent = np.isin(events.name_code, facts.trace.codes_where(lambda name: "HtoD" in name))
    assert events.size_bytes[sent].sum() / 1e9 == pytest.approx(25.5, abs=0.05)
    assert events.duration_ns[sent].sum() / 1e6 == pytest.approx(921, abs=0.5)
    work = facts.device.work
    window_ns = events.end_ns[work].max() - events.start_ns[work].min()
    assert window_ns / 1e6 == pytest.approx(960, abs=10)
    assert (len(facts.operators.rows) > 0, facts.operators.has_shapes) == (True, False)
    assert [note for note in facts.trace.health if "processes" in note]


def test_the_healthy_recording_has_no_findings(corpus):
    facts = Facts(read_trace(corpus / "nsys" / "healthy_1pct.sqlite"))
    assert facts.trace.health == ()
    assert busy_fraction(facts, *facts.steps.window_ns) == pytest.approx(0.99, abs=0.001)
    assert diagnose(facts).findings == ()


def limit_for(events: int) -> int:
    return EMPTY_BYTES + events * EVENT_BYTES


def many(tables: dict[str, Table], limit_bytes: int, tmp_path: Path) -> Trace:
    return read_trace(write_export(tmp_path / "large.sqlite", tables), limit_bytes=limit_bytes)


LARGE: dict[str, Table] = {
    "StringIds": NAMES,
    RUNTIME: calls(*((100 * i, 100 * i + 10, i, 1) for i in range(100))),
    KERNEL: kernels(*((100 * i + 20, 100 * i + 90, i, 2) for i in range(100))),
    "NVTX_EVENTS": ranges(
        (0, 10_000, "training"), *((1000 * i, 1000 * i + 999, f"ProfilerStep#{i}") for i in range(10))
    ),
}


def test_of_a_too_large_export_the_beginning_of_all_tables_is_kept(tmp_path: Path):
    trace = many(LARGE, limit_for(100), tmp_path)
    names = [name for name, _, _ in listed(trace)]
    assert (names.count("cudaLaunchKernel"), names.count("sgemm")) == (47, 47)
    assert max(start + length for _, start, length in listed(trace)) == 4700
    (note,) = trace.health
    assert note == (
        "only the first 4.70 µs (99 of 211 events) were kept, and all figures are of these alone: the trace needs more "
        "than 100 MB of memory (PROFKIT_MEMORY_LIMIT sets another limit)"
    )


def test_a_cut_step_is_dropped_and_other_cut_ranges_are_shortened(tmp_path: Path):
    found = {name: length for name, _, length in listed(many(LARGE, limit_for(100), tmp_path))}
    assert [name for name in found if name.startswith("ProfilerStep#")] == [f"ProfilerStep#{i}" for i in range(4)]
    assert found["training"] == 4700


@pytest.mark.parametrize(("events", "kept"), [(211, 211), (210, 209)])
def test_an_export_that_just_fits_is_kept_completely(events: int, kept: int, tmp_path: Path):
    """With room for one event less the last kernel is dropped, and with it its step."""
    trace = many(LARGE, limit_for(events), tmp_path)
    assert (len(trace.events), bool(trace.health)) == (kept, events < 211)


def test_more_events_at_one_moment_than_fit_are_refused(tmp_path: Path):
    at_once = {"StringIds": NAMES, RUNTIME: calls(*((7, 9, i, 1) for i in range(100)))}
    with pytest.raises(UnreadableInput, match="holds more at one moment than the memory limit allows"):
        many(at_once, limit_for(10), tmp_path)


def test_the_limit_of_the_environment_reaches_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    limits = []
    monkeypatch.setattr("profkit.trace.nsys.reader._find_cutoff", lambda tables, limit: limits.append(limit))
    monkeypatch.setenv(MEMORY_LIMIT, "500MB")
    read_facts(write_export(tmp_path / "small.sqlite", WHOLE))
    assert limits == [500_000_000]
