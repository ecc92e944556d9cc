"""Recurrent cells called once for each time step, and loops over time that have to be loops."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.unrolled_recurrence import unrolled_recurrence
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
BATCH, FEATURES, HIDDEN, LENGTH = 4, 6, 5, 20
STATE = [BATCH, HIDDEN]


def find(facts) -> list[Suspicion]:
    return list(unrolled_recurrence.check(facts))


def cell(at: float, name: str = "lstm", kind: str = "float", batch: int = BATCH) -> list[Json]:
    """A call of 30 µs, of which 8 µs and 9 µs are its products."""
    state = [batch, HIDDEN]
    dims = [[batch, FEATURES], [state, state] if name == "lstm" else state, [20, FEATURES], [20, HIDDEN], [20], [20]]
    return [
        op(f"aten::{name}_cell", at, 30, dims=dims, types=[kind] * 6),
        op("aten::addmm", at + 1, 8),
        op("aten::addmm", at + 11, 9),
        op("aten::tanh", at + 21, 8),
    ]


def pick(at: float, length: int = LENGTH) -> Json:
    return op("aten::select", at, 2, dims=[[BATCH, length, FEATURES], [], []], types=["float", "Scalar", "Scalar"])


def recording(calls: int = 8, between: tuple[Json, ...] = (), picked: int | None = LENGTH, **options: Any):
    """Four steps of 600 µs with a call every 50 µs; ``between`` stand after each with times relative to it."""
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, 600 * i, 600))
        for k in range(calls):
            at = 600.0 * i + 10 + 50 * k
            events += [*([pick(at, picked)] if picked else []), *cell(at + 2, **options)]
            events += [{**event, "ts": event["ts"] + at + 32} for event in between]
    return facts_of(events)


def test_of_a_loop_the_arithmetic_of_its_products_is_kept():
    facts = recording()
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::lstm_cell")
    assert found.evidence == {"calls_per_step": 8, "longest_run": 8}
    assert "nn.LSTMCell" in found.message
    kept = 8 * (3 + 4)  # each product without the 5 µs of its call
    assert predict_saving(facts, found.edit).fraction == pytest.approx((7 * 50 + 30 - kept) / 600, abs=1e-4)


@pytest.mark.parametrize(("calls", "reported"), [(8, 1), (7, 0)])
def test_eight_calls_in_a_row_are_the_least(calls, reported):
    assert len(find(recording(calls))) == reported


@pytest.mark.parametrize(("name", "kind"), [("gru", "float"), ("rnn_tanh", "float"), ("lstm", "double")])
def test_what_no_library_of_the_cpu_has_keeps_all_but_python_and_one_product_call(name, kind):
    facts = recording(name=name, kind=kind)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((7 * 50 + 30 - 8 * 25) / 600, abs=1e-4)


def test_inputs_that_were_taken_apart_before_the_loop_count():
    assert len(find(recording(picked=None))) == 1


def test_what_a_head_computes_of_each_output_stays():
    """With the 2 µs in which Python prepares each of its calls."""
    head = op("aten::linear", 2, 10, dims=[STATE, [3, HIDDEN], [3]], types=["float"] * 3)
    facts = recording(between=(head,))
    (found,) = find(facts)
    kept = 8 * 7 + 7 * (2 + 10)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((7 * 50 + 30 - kept) / 600, abs=1e-4)


def test_a_prediction_that_is_fed_back_is_silent():
    head = op("aten::linear", 2, 10, dims=[STATE, [FEATURES, HIDDEN], [FEATURES]], types=["float"] * 3)
    assert find(recording(between=(head,), picked=None)) == []


def test_a_prediction_that_is_picked_from_an_output_of_one_step_is_silent():
    head = op("aten::linear", 2, 10, dims=[STATE, [FEATURES, HIDDEN], [FEATURES]], types=["float"] * 3)
    assert find(recording(between=(head,), picked=1)) == []


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(op("aten::mul", 2, 4, dims=[STATE, [BATCH, 1]], types=["float"] * 2), id="masked"),
        pytest.param(op("aten::layer_norm", 2, 4, dims=[STATE, [5]], types=["float"] * 2), id="normalised"),
        pytest.param(op("aten::linear", 2, 4, dims=[STATE, [HIDDEN, HIDDEN]], types=["float"] * 2), id="projected"),
        pytest.param(op("aten::zeros", 2, 4, dims=[[], []], types=["", ""]), id="begun anew"),
    ],
)
def test_a_state_that_is_changed_between_the_calls_is_silent(event):
    assert find(recording(between=(event,))) == []


def test_keeping_a_copy_of_each_state_changes_nothing():
    copy = op("aten::copy_", 2, 4, dims=[STATE, STATE], types=["float"] * 2)
    assert len(find(recording(between=(copy,)))) == 1


def test_an_input_made_of_the_step_and_an_attended_context_is_silent():
    attend = op("aten::bmm", 2, 4, dims=[[BATCH, 1, 9], [BATCH, 9, 3]], types=["float"] * 2)
    join = op("aten::cat", 7, 4, dims=[[[BATCH, 3], [BATCH, 3]], []], types=["TensorList", "Scalar"])
    assert find(recording(between=(attend, join), picked=None)) == []


def test_calls_of_different_shapes_are_silent():
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, 600 * i, 600))
        for k in range(8):
            events += cell(600.0 * i + 10 + 50 * k, batch=k + 1)
    assert find(facts_of(events)) == []


def marked(*lines: str, head_out: int = 3, between: tuple[Json, ...] = (), heads: int = 1):
    """Three steps, the first with marks, of a loop of 20 rounds of 40 µs. The second line calls a cell, the third
    a head, and runs ``heads`` times; no operator takes the input from a sequence."""
    sites = tuple(CallSite("tag.py", 6 + i, "encode", line) for i, line in enumerate(lines))
    dims = [STATE, [head_out, HIDDEN], [head_out]]
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 1000 * i, 1000))
        for k in range(20):
            at = 1000.0 * i + 10 + 40 * k
            rounds = [(0, at, 1), (1, at + 1, 31), *((2, at + 32 + 7 * j / heads, 7 / heads) for j in range(heads))]
            events += [mark(site, begin, length) for site, begin, length in rounds if i == 0]
            events += [*cell(at + 1.5), op("aten::linear", at + 33, 4, dims=dims, types=["float"] * 3)]
            events += [op("aten::addmm", at + 33.5, 3), *({**event, "ts": at + 37} for event in between)]
    return facts_of(events, callsites=sites)


LOOP, CELL, HEAD = "for part in x.unbind(1):", "h, c = self.cell(part, (h, c))", "out.append(self.head(h))"


def test_where_the_source_shows_that_inputs_are_there_a_head_in_the_loop_is_called_once_after_it():
    facts = marked(LOOP, CELL, HEAD)
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.line, found.evidence["longest_run"]) == (7, 20)
    assert "then called once, on all of them" in found.fix
    kept = 20 * 7  # the head's product is shorter than its call
    assert predict_saving(facts, found.edit).fraction == pytest.approx((19 * 40 + 30 - kept) / 1000, abs=1e-4)


@pytest.mark.parametrize(("heads", "kept"), [(2, 0), (3, 19 * (4 + 1.5))])
def test_a_loop_inside_the_loop_stays_with_its_python(heads, kept):
    """Its line runs three times in a time step. A helper may be called twice."""
    facts = marked(LOOP, CELL, HEAD, heads=heads)
    (found,) = find(facts)
    saved = 19 * 40 + 30 - 20 * 7 - kept
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved / 1000, abs=1e-4)


def test_the_same_loop_whose_input_is_what_the_head_gave_is_silent():
    assert find(marked("for _ in range(future):", "h, c = self.cell(y, (h, c))", "y = self.head(h)")) == []


def test_a_loop_that_feeds_a_state_back_without_an_operator_in_between_is_silent():
    """Without its source the state of the layer below would look the same."""
    assert len(find(recording(picked=None))) == 1
    sites = (CallSite("dream.py", 7, "dream", "h, c = self.cell(h, (h, c))"),)
    events = [
        event
        for i in range(3)
        for event in (
            step(i, 600 * i, 600),
            *(
                each
                for k in range(8)
                for each in (*([mark(0, 600 * i + 10 + 50 * k, 40)] if i == 0 else []), *cell(600.0 * i + 12 + 50 * k))
            ),
        )
    ]
    assert find(facts_of(events, callsites=sites)) == []


def test_an_activation_of_the_state_is_the_heads_where_no_line_but_the_cells_assigns_the_state():
    relu = op("aten::relu", 0, 2, dims=[STATE], types=["float"])
    assert len(find(marked(LOOP, CELL, HEAD, between=(relu,)))) == 1
    assert find(marked(LOOP, CELL, "h = self.mix(h)", between=(relu,))) == []


def test_the_loop_is_reported_at_the_line_of_the_call():
    sites = (CallSite("tag.py", 7, "encode", "h, c = self.cell(x[:, t], (h, c))"),)
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 600 * i, 600))
        for k in range(8):
            at = 600.0 * i + 10 + 50 * k
            events += [*([mark(0, at - 1, 40)] if i == 0 else []), pick(at), *cell(at + 2)]
    (found,) = find(facts_of(events, callsites=sites))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("tag.py", 7)


def test_the_backward_pass_keeps_its_products():
    events: list[Json] = []
    for i in range(3):
        at = 1000 * i
        events.append(step(i, at, 1000))
        for k in range(8):
            call, *inside = cell(at + 10 + 50.0 * k)
            call["args"]["Sequence number"] = at + k
            node = op("autograd::engine::evaluate_function: AddmmBackward0", at + 500 + 40 * k, 20, sequence=at + k)
            events += [call, *inside, node, op("aten::mm", at + 502 + 40 * k, 9)]
    facts = facts_of(events)
    (found,) = find(facts)
    forward, backward = 7 * 50 + 30 - 8 * 7, 8 * (20 - 4)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((forward + backward) / 1000, abs=1e-4)


def test_on_a_device_the_kernels_of_the_products_stay():
    """Of each call 20 µs of kernels, 15 of them in products; the device is always behind."""
    events: list[Json] = []
    for i in range(4):
        at = 400.0 * i
        events.append(step(i, at, 400))
        for k in range(8):
            begin, number = at + 31 * k, int(at) + 2 * k + 1
            events += cell(begin)
            for offset, length, later in ((2, 15, 0), (22, 5, 1)):
                name = "gemm" if not later else "tanh"
                events.append(runtime("cudaLaunchKernel", begin + offset, 1, correlation=number + later))
                events.append(kernel(name, at + 60 + 20 * k + 15 * later, length, correlation=number + later))
        events.append(runtime("cudaStreamSynchronize", at + 260, 130))
    facts = facts_of(events)
    (found,) = find(facts)
    assert found.edit is not None
    assert sorted(set(found.edit.work_kept_ns.tolist())) == [3750, 11250]


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::lstm_cell", 1, 9)])
    assert Need.SHAPES in missing_needs(facts, unrolled_recurrence.needs)
