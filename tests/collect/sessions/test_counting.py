"""What a recording holds is counted in the text that Kineto wrote."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest
import torch

from profkit.collect.sessions.counting import ACCUMULATES, STOP_MARK, Counted, count_events
from profkit.collect.sessions.exporting import write_plain
from profkit.collect.sessions.host_marks import open_mark
from profkit.collect.sessions.session import ProfilerSession

RECORDED = Path(__file__).parents[3] / "traces" / "recorded"


def event(name: str, ts: str, dur: str, kind: str = "cpu_op", gap: str = " ") -> str:
    fields = ['"ph": "X"', f'"cat": "{kind}"', f'"name": "{name}"', '"pid": 1', '"tid": 1', f'"ts": {ts}']
    return "{" + f",{gap}".join([*fields, f'"dur": {dur}', '"args": {"Ev Idx": 3}']) + "}"


def counted(*events: str) -> Counted:
    return count_events(io.BytesIO(('{"traceEvents": [' + ",".join(events) + "]}").encode()))


STOP = event(STOP_MARK, "90.000", "10.000", "user_annotation")
OPERATOR = event("aten::mul", "1.000", "2.000")


@pytest.mark.parametrize("gap", [" ", "\n    "])
@pytest.mark.parametrize(
    ("name", "ts", "dur", "kind", "cut_off"),
    [
        ("aten::mul", "1.5", "98.499", "cpu_op", 0),
        ("aten::mul", "1.500", "98.500", "cpu_op", 1),  # it ends where the mark does
        ("aten::mul", "1.500", "98.501", "cpu_op", 1),
        ("aten::mul", "1.500", "98.499", "cpu_op", 0),
        ("aten::mul", "1", "99", "cpu_op", 1),  # without decimals
        ("a range", "1.500", "98.501", "user_annotation", 0),
        ("a { name", "1.500", "98.501", "cpu_op", 0),  # none of PyTorch's has a brace
    ],
)
def test_operators_that_end_with_the_recording_were_cut_off(name, ts, dur, kind, cut_off, gap):
    found = counted(event(name, ts, dur, kind, gap), STOP)
    assert found == Counted(events=1, cut_off=cut_off)


def test_an_operator_that_ends_with_a_mark_around_it_was_cut_off_there():
    line = event("profkit.line#3", "2.000", "5.000", "user_annotation")
    assert counted(line, event("aten::mul", "3.000", "4.000"), OPERATOR, STOP) == Counted(events=2, cut_off=1)


def test_memory_counts_and_what_profkit_marks_does_not():
    memory = '{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 3.000, "args": {"Bytes": 4}}'
    added = event("torch::autograd::AccumulateGrad", "5.000", "1.000")
    named = '{"ph": "M", "name": "process_name", "ts": 3.000}'
    assert counted(named, OPERATOR, memory, added, STOP) == Counted(events=3, gradients_added=1)
    assert counted() == Counted()


def test_a_recording_of_this_version_of_pytorch_is_counted(tmp_path):
    session = ProfilerSession(cuda=False, memory=False, trees=False)
    session.start()
    weight = torch.ones(4, requires_grad=True)
    with open_mark("profkit.line#0"):
        (weight * 2).sum().backward()
    session.stop()
    with write_plain(session, tmp_path) as file:
        found = count_events(file)
        file.seek(0)
        events = json.load(file)["traceEvents"]
    names = [one["name"] for one in events if one["ph"] == "X" and one["cat"] != "Trace"]
    assert "torch::autograd::AccumulateGrad" in names
    assert found == Counted(sum(not name.startswith("profkit.") for name in names), 0, gradients_added=1)


class Stops(torch.autograd.Function):
    """The recording ends within it."""

    @staticmethod
    def forward(ctx, x, stop):
        stop()
        return x * 2


def test_an_operator_that_a_recording_of_this_version_cuts_off_is_seen(tmp_path):
    session = ProfilerSession(cuda=False, trees=False)
    session.start()
    Stops.apply(torch.ones(4), session.stop)
    with write_plain(session, tmp_path) as file:
        assert count_events(file).cut_off == 1


def test_a_recording_without_events_holds_none(tmp_path):
    session = ProfilerSession(cuda=False, trees=False)
    session.start()
    session.stop()
    with write_plain(session, tmp_path) as file:
        assert count_events(file) == Counted()


def test_recordings_of_a_gpu_are_counted_as_their_json_tells():
    """Those of two versions of PyTorch, with kernels and calls of the runtime."""
    traces = sorted(RECORDED.glob("**/*.pt.trace.json.gz"))
    assert len(traces) > 20
    for trace in traces[::8]:
        text = gzip.decompress(trace.read_bytes())
        events = [one for one in json.loads(text)["traceEvents"] if one["ph"] in "Xi" and "cat" in one]
        names = [one["name"] for one in events if one["cat"] != "Trace" and not one["name"].startswith("profkit.")]
        found = count_events(io.BytesIO(text))
        assert (found.events, found.gradients_added) == (len(names), names.count(ACCUMULATES)), trace
