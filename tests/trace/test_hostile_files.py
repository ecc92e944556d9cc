"""Files that are not, or no longer, a trace: one line names the file and the cause, and nothing else is raised."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from backports import zstd
from hypothesis import assume, given
from hypothesis import strategies as st

from profkit.core.errors import ProfkitError, UnreadableInput
from profkit.derive.facts import Facts
from profkit.patterns.time.shares import time_shares
from profkit.savings.edits import Edit
from profkit.savings.replay import replay
from profkit.trace import containers
from profkit.trace.events import Category
from profkit.trace.kineto.reader import read_kineto
from tests.traces import (
    annotation,
    json_of,
    kernel,
    mark,
    memcpy,
    memory,
    op,
    python,
    runtime,
    step,
    trace_of_bytes,
)

WHOLE = json_of([op(f"aten::op{i}", 10 * i, 9, dims="[[4],[]]", types='["float",""]') for i in range(20)])


def _name_of(parameter: str | bytes) -> str:
    """Name the test by kind, because a compressed file contains the time, and names of tests must not change."""
    return parameter if isinstance(parameter, str) else "bytes"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "is empty"),
        (b" \n\t\r\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"PK\x03\x04", "is neither JSON nor gzip nor zstd"),
        (b"import torch\n", "is neither JSON nor gzip"),
        (b"\x80\x04\x95", "is neither JSON nor gzip"),
        (gzip.compress(WHOLE)[:15], "is a gzip file cut off after 0 bytes of content"),
        (b"\x1f\x8b" + b"x" * 40, "is a damaged gzip file"),
        (zstd.compress(b" "), "is empty"),
        (zstd.compress(WHOLE)[:15], "is a zstd file cut off after 0 bytes of content"),
        (zstd.compress(WHOLE)[:4] + b"\xff" * 40, "is a damaged zstd file"),
        (WHOLE[:60], "is not whole JSON: "),
        (b"[" + b",".join([WHOLE]), "is not whole JSON: "),
        (b'{"traceEvents": [{"ph": "X", "name": N/A}]}', "is not whole JSON: "),
        (b"{}", "is JSON but not a profiler trace"),
        (b'{"a": [{"b": 1}, {"b": 2}]}', "is JSON but not a profiler trace"),
        (b'{"traceEvents": {"a": 1}}', "is JSON but not a profiler trace"),
        (b'{"traceEvents": 5, "a": [{"b": 1}]}', "is JSON but not a profiler trace"),
        (b'{"traceEvents": null}', "is JSON but not a profiler trace"),
        (b"[]", "holds no events"),
        (b"[1, 2, 3]", "holds no events"),
        (b'[{"rows": 4}]', "holds no events"),
        (b'{"traceEvents": []}', "holds no events"),
        (b'{"traceEvents": [], "deviceProperties": [{"id": 0}]}', "holds no events"),
        (json_of([{**op("a", 0, 1), "ts": None}]), "holds no event with a time"),
        (b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}", "is not whole JSON: nested too deeply"),
    ],
    ids=_name_of,
)
def test_a_file_other_than_a_trace_is_refused_in_one_line(tmp_path, content, cause):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput) as caught:
        read_kineto(path)
    assert str(caught.value).startswith(f"{path}: {cause}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_directory_and_a_forbidden_file_are_refused(tmp_path):
    with pytest.raises(UnreadableInput, match=r"nowhere\.json: no such file"):
        read_kineto(tmp_path / "nowhere.json")
    with pytest.raises(UnreadableInput, match="cannot be read: Is a directory"):
        read_kineto(tmp_path)
    if os.geteuid() != 0:
        path = tmp_path / "secret.json"
        path.write_bytes(WHOLE)
        path.chmod(0)
        with pytest.raises(UnreadableInput, match="cannot be read: Permission denied"):
            read_kineto(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd.compress])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.json.zst", "trace"])
def test_the_format_follows_from_the_bytes_and_not_from_the_suffix(pack, name):
    trace = trace_of_bytes(pack(WHOLE), name)
    assert (len(trace.events), trace.health) == (20, ())


@pytest.mark.parametrize("members", [1, 50])
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_a_decompression_bomb_is_refused_early(tmp_path, members, pack):
    path = tmp_path / "bomb.json"
    path.write_bytes(pack(b"[" + b" " * ((64 << 20) // members)) * members)
    tracemalloc.start()
    with patch.object(containers, "MAX_BYTES", 1 << 20), pytest.raises(UnreadableInput, match="is larger than"):
        read_kineto(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 12 << 20


def test_no_more_of_a_file_is_read_than_allowed(tmp_path):
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate(1 << 40)
    with patch.object(containers, "MAX_BYTES", 1 << 20), pytest.raises(UnreadableInput, match="is larger than"):
        read_kineto(path)


def test_memory_grows_with_events_not_with_text(tmp_path):
    filler = {"Call stack": "train.py(1): main;" * 500}
    events = [{**op("a", i, 1), "args": filler} for i in range(4000)]
    path = tmp_path / "long.json.gz"
    path.write_bytes(gzip.compress(json_of(events), 1))
    read_kineto(path)
    tracemalloc.start()
    trace = read_kineto(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace.events) == 4000
    assert peak_bytes < 8 << 20  # of 36 MB of text


_ARGUMENT = st.recursive(
    st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=4) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_NAME = st.text(st.sampled_from('},{"[]:\\\n ab\u20ac'), max_size=9) | st.sampled_from(["},{", '"},\n {"', "},\n{"])
_EVENT = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(["cpu_op", "kernel", "x},{"]),
        "name": _NAME,
        "dur": st.integers(0, 9**9) | st.floats(0, 9e9, allow_nan=False),
    },
    optional={
        "args": st.dictionaries(_NAME | st.sampled_from(["External id", "Input Dims", "name"]), _ARGUMENT, max_size=3),
        "pid": st.integers(-5, 2**40) | _NAME,
        "extra": _ARGUMENT,
    },
)
_LAYOUTS = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (", ", ": ")},
        {"indent": 1},
        {"indent": "\t"},
        {"indent": 0, "separators": (",", ":")},
    ]
)


@given(
    st.lists(_EVENT, min_size=1, max_size=8),
    _LAYOUTS,
    st.integers(1, 400),
    st.booleans(),
    st.dictionaries(_NAME, _ARGUMENT, max_size=2),
)
def test_reading_in_chunks_equals_reading_the_whole(events, layout, chunk_bytes, as_array, other_keys):
    assume("traceEvents" not in other_keys)
    events = [{**event, "ts": 7 * i + 7} for i, event in enumerate(events)]
    document = events if as_array else {**other_keys, "traceEvents": events, "with_stack": [{"a": 1}, {"b": 2}]}
    content = json.dumps(document, **layout).encode()
    with patch.object(containers, "PIECE_BYTES", chunk_bytes):
        trace = trace_of_bytes(content)
    found = sorted(
        (
            int(trace.events.start_ns[i]),
            trace.name_of(i),
            int(trace.events.duration_ns[i]),
            trace.lanes[trace.events.lane[i]].process,
            int(trace.events.category[i]),
            json.loads(trace.text_of(trace.events.dims_code[i]) or "null"),
        )
        for i in range(len(trace.events))
    )
    kinds = {"cpu_op": Category.OPERATOR, "kernel": Category.KERNEL}
    expected = [
        (
            7_000 * i,
            event["name"],
            round(event["dur"] * 1000),
            str(event.get("pid")),
            int(kinds.get(event["cat"], Category.OTHER)),
            event.get("args", {}).get("Input Dims"),
        )
        for i, event in enumerate(json.loads(json.dumps(events)))
    ]
    assert found == expected


def _synthesised() -> bytes:
    """Two steps with everything that facts are derived from."""
    events = [python("torch/profiler/profiler.py(9): __exit__", 190, 20), python("train.py(3): main", 0, 190)]
    for n in (0, 1):
        at = 90 * n
        events += [
            step(n, at, 85),
            mark(n, at + 1, 30),
            annotation("enumerate(DataLoader)#_Single.__next__", at + 2, 5),
            op("aten::addmm", at + 10, 12, dims="[[4],[4,4],[4,4]]", types='["float","float","float"]', sequence=n),
            runtime("cudaLaunchKernel", at + 12, 3, correlation=n + 1),
            kernel("sgemm", at + 16, 30, correlation=n + 1),
            op("autograd::engine::evaluate_function: AddmmBackward0", at + 35, 9, sequence=n, tid=2),
            runtime("cudaMemcpyAsync", at + 37, 3, correlation=n + 11, tid=2),
            memcpy("Memcpy HtoD (Pageable -> Device)", at + 48, 4, correlation=n + 11, size_bytes=4096),
            annotation("Optimizer.step#SGD.step", at + 60, 10),
            op("aten::item", at + 71, 9),
            runtime("cudaStreamSynchronize", at + 72, 7),
            memory(at + 11, 512, 64, device_type=1),
            memory(at + 80, -512, 64, device_type=1),
        ]
    events.append(runtime("cudaDeviceSynchronize", 195, 3))
    return json_of(events, deviceProperties=[{"id": 0, "name": "A100"}], distributedInfo={"rank": 0, "world_size": 2})


SYNTHESISED = _synthesised()


def _read_and_derive(content: bytes) -> None:
    """Read, derive every fact and replay. Only errors that profkit raises on purpose may occur."""
    try:
        facts = Facts(trace_of_bytes(content))
    except ProfkitError as error:
        assert "\n" not in str(error)  # noqa: PT017  # any mutation may be readable, so nothing can be expected to raise
        return
    assert len(facts.steps) >= 1
    assert sum(time for _, time in time_shares(facts)) >= 0
    facts.lines, facts.waits, facts.memory, facts.operators, facts.loading, facts.optimizing  # noqa: B018  # computed once
    result = replay(facts, Edit())
    assert abs(result.edited_ns - result.recorded_ns) <= 0.02 * max(result.recorded_ns, 1)


def test_the_synthesised_trace_is_complete():
    facts = Facts(trace_of_bytes(SYNTHESISED))
    assert (len(facts.steps), facts.device.present, facts.lines.known, facts.memory.present) == (2, True, True, True)
    assert facts.waits.own.tolist().count(True) == 1
    assert np.unique(facts.trace.events.category).tolist() == [1, 2, 3, 4, 5, 6, 9, 10]


@given(st.integers(0, len(SYNTHESISED)))
def test_a_trace_cut_off_anywhere_is_read_or_refused(at):
    _read_and_derive(SYNTHESISED[:at])
    _read_and_derive(gzip.compress(SYNTHESISED[:at], 1))
    packed = gzip.compress(SYNTHESISED, 1)
    _read_and_derive(packed[: at % len(packed)])
