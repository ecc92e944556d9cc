"""Recurrent cells that a program writes itself, called once for each time step, and loops that look like one."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import Suspicion
from profkit.rules.unrolled_recurrence import unrolled_recurrence
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
BATCH, FEATURES, HIDDEN, WORDS = 4, 6, 5, 30
INPUT, STATE = [BATCH, FEATURES], [BATCH, HIDDEN]
JOINED = FEATURES + HIDDEN
HEAD, CALL = "for k in range(n):", "logits, h = net(text[:, k], h)"
CELL = "h = torch.tanh(self.i2h(torch.cat([self.emb(c), h], 1)))"
INLINE = "h = torch.tanh(self.i2h(x[:, k]) + self.h2h(h))"


def find(facts) -> list[Suspicion]:
    return list(unrolled_recurrence.check(facts))


def operator(name: str, *shapes: list[int] | list[list[int]], at: float = 0, length: float = 4) -> Json:
    return op(f"aten::{name}", at, length, dims=list(shapes), types=["float"] * len(shapes))


def linear(of: list[int], width: int) -> Json:
    return operator("linear", of, [width, of[-1]], [width])


def pointwise(names: str, shape: list[int] = STATE) -> list[Json]:
    return [operator(name, *[shape] * (2 if name in {"add", "mul"} else 1)) for name in names.split()]


CAT = [operator("cat", [INPUT, STATE], []), linear([BATCH, JOINED], HIDDEN), *pointwise("tanh")]
ADDED = [linear(INPUT, HIDDEN), linear(STATE, HIDDEN), *pointwise("add tanh")]
GATED = "sigmoid mul sigmoid tanh mul add sigmoid tanh mul"
LSTM = [operator("cat", [INPUT, STATE], []), linear([BATCH, JOINED], 4 * HIDDEN), *pointwise(GATED)]
LSTM_OF_TWO = [
    linear(INPUT, 4 * HIDDEN),
    linear(STATE, 4 * HIDDEN),
    operator("add", [BATCH, 20], [BATCH, 20]),
    *pointwise(GATED),
]
LSTM_OF_FOUR = [
    operator("cat", [INPUT, STATE], []),
    *(each for name in ("sigmoid", "sigmoid", "tanh") for each in (linear([BATCH, JOINED], HIDDEN), *pointwise(name))),
    *pointwise("mul mul add"),
    linear([BATCH, JOINED], HIDDEN),
    *pointwise("sigmoid tanh mul"),
]

LSTM_OF_EIGHT = [
    *(each for name in ("sigmoid", "sigmoid", "tanh", "sigmoid") for each in (*ADDED[:3], *pointwise(name))),
    *pointwise("mul mul add tanh mul"),
]


def placed(operators: list[Json], at: float) -> list[Json]:
    """One every 5 µs."""
    return [{**each, "ts": at + 5 * i} for i, each in enumerate(operators)]


def recording(
    cell: list[Json] = CAT,
    lines: tuple[str, ...] = (HEAD, CALL),
    inner: str | None = CELL,
    *,
    rounds: int = 8,
    before: list[Json] | None = None,
    inside: list[Json] | None = None,
    between: list[Json] | None = None,
    also: list[Json] | None = None,
):
    """Three steps of a loop whose rounds take 200 µs, the first with marks: the loop's head, the line with the cell,
    or the call of a module with it, and further lines, of which the last runs ``between``. ``before`` and ``inside``
    run in the module, before the cell and after it."""
    sites = (
        *(CallSite("char.py", 6 + i, "train", line) for i, line in enumerate(lines)),
        CallSite("char.py", 30, "forward", inner or ""),
    )
    length = 200 * rounds + 100
    events: list[Json] = []
    for number in range(3):
        events.append(step(number, length * number, length))
        for k in range(rounds):
            at = length * number + 10 + 200.0 * k
            if number == 0:
                events += [mark(0, at, 1), mark(1, at + 1, 159)]
                events += [mark(len(lines), at + 2, 157)] * (inner is not None)
                events += [mark(i, at + 160 + 2 * i, 2) for i in range(2, len(lines) - 1)]
                events += [mark(len(lines) - 1, at + 170, 29)] * (len(lines) > 2)
            pick = operator("select", [BATCH, 9, FEATURES])
            events += placed([pick, *(before or []), *cell, *(inside or [])], at + 3)
            events += placed(between or [], at + 171)
    return facts_of([*events, *(also or [])], callsites=sites)


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        pytest.param(CAT, "nonlinearity='tanh'", id="over a concatenation"),
        pytest.param([*CAT[:2], *pointwise("relu")], "nonlinearity='relu'", id="with relu"),
        pytest.param([operator("cat", [STATE, INPUT], []), *CAT[1:]], "nonlinearity='tanh'", id="state first"),
        pytest.param(ADDED, "nonlinearity='tanh'", id="of two layers"),
        pytest.param(LSTM, "`nn.LSTM`", id="gates of one layer"),
        pytest.param(LSTM_OF_TWO, "`nn.LSTM`", id="gates of two layers"),
        pytest.param(LSTM_OF_FOUR, "`nn.LSTM`", id="a layer for each gate"),
        pytest.param(LSTM_OF_EIGHT, "`nn.LSTM`", id="two layers for each gate"),
    ],
)
def test_a_cell_that_a_module_computes_is_reported_at_the_loops_line_that_calls_it(cell, named):
    (found,) = find(recording(cell))
    assert found.location is not None
    assert (found.location.line, found.location.function) == (7, "train")
    assert named in found.fix
    assert found.evidence == {"calls_per_step": 8, "longest_run": 8}


def test_a_cell_in_the_loops_own_line_is_reported_there():
    (found,) = find(recording(ADDED, (HEAD, INLINE), None))
    assert found.location is not None
    assert (found.location.line, found.location.source) == (7, INLINE)


@pytest.mark.parametrize(("rounds", "reported"), [(8, 1), (7, 0)])
def test_eight_rounds_are_the_least(rounds, reported):
    assert len(find(recording(rounds=rounds))) == reported


def test_the_product_of_all_inputs_is_one_and_what_is_pythons_vanishes():
    facts = recording(ADDED, (HEAD, INLINE), None)
    (found,) = find(facts)
    loop = 7 * 200 + 4 * 5 - 1  # from the first cell's first operator to the end of the last one's last
    kept = 8 * 3 * 4  # the state's product, the addition and tanh, of 4 µs each
    assert predict_saving(facts, found.edit).fraction == pytest.approx((loop - kept) / 1700, abs=1e-3)


def test_a_head_in_the_module_and_a_criterion_in_the_loop_change_nothing():
    loss = "loss = loss + criterion(logits, text[:, k + 1])"
    head, criterion = linear(STATE, WORDS), operator("cross_entropy_loss", [BATCH, WORDS], [BATCH])
    assert len(find(recording(lines=(HEAD, CALL, loss), inside=[head], between=[criterion]))) == 1


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(CAT[:2], id="no nonlinearity"),
        pytest.param([*CAT[:2], *pointwise("sigmoid")], id="another nonlinearity"),
        pytest.param([*CAT, *pointwise("add")], id="a residual"),
        pytest.param([*CAT[:2], operator("layer_norm", STATE, [HIDDEN]), *CAT[2:]], id="normalised within"),
        pytest.param([*CAT, operator("layer_norm", STATE, [HIDDEN])], id="normalised after"),
        pytest.param([*CAT, operator("detach", STATE)], id="cut off from the rounds before"),
        pytest.param([*CAT, *CAT], id="two cells a round"),
        pytest.param([operator("cat", [INPUT] * 2 + [STATE], []), linear([BATCH, 17], 5), *CAT[2:]], id="two inputs"),
        pytest.param([linear(INPUT, 5), linear(INPUT, 5), *ADDED[2:]], id="no state"),
        pytest.param([*LSTM[:2], *pointwise("sigmoid mul sigmoid tanh mul add sigmoid mul tanh")], id="another order"),
        pytest.param([*LSTM[:2], *pointwise("sigmoid mul tanh tanh mul add sigmoid tanh mul")], id="a gate of tanh"),
        pytest.param([*LSTM, *pointwise("mul mul")], id="more gates"),
        pytest.param([*LSTM[:3], operator("mul", STATE, [BATCH, 1]), *LSTM[4:]], id="a gate for all"),
        pytest.param([CAT[0], linear([BATCH, JOINED], 7), CAT[2]], id="a product of another size"),
        pytest.param([ADDED[0], operator("detach", STATE), *ADDED[1:]], id="cut off within"),
        pytest.param([linear(STATE, HIDDEN), *pointwise("tanh")], id="a layer over and over"),
    ],
)
def test_operators_that_are_no_cell_or_more_than_one_are_silent(cell):
    assert find(recording(cell)) == []


def test_an_input_that_a_module_attends_to_with_the_state_is_silent():
    attend = [operator("bmm", [BATCH, 1, HIDDEN], [BATCH, HIDDEN, FEATURES])]
    assert find(recording(before=attend)) == []
    assert len(find(recording(before=[operator("relu", INPUT)]))) == 1


def test_two_loops_one_after_the_other_are_told_each_at_its_line():
    lines = HEAD, "h = torch.tanh(self.a(x[:, k]) + self.b(h))", "for m in range(n):", INLINE.replace("k", "m")
    sites = tuple(CallSite("two.py", 6 + i, "forward", line) for i, line in enumerate(lines))
    events: list[Json] = []
    for number in range(3):
        events.append(step(number, 1700 * number, 1700))
        for k in range(16):
            at, head = 1700.0 * number + 10 + 100 * k, 2 * (k // 8)
            events += [mark(head, at, 1), mark(head + 1, at + 1, 90)] * (number == 0)
            events += placed(ADDED, at + 3)
    found = find(facts_of(events, callsites=sites))
    assert [each.location and each.location.line for each in found] == [7, 9]
    assert [each.count for each in found] == [8, 8]


def test_a_module_whose_layer_differs_by_a_count_of_its_own_is_silent():
    assert find(recording(inner="h = torch.tanh(self.layers[self.i](torch.cat([self.emb(c), h], 1)))")) == []


def test_where_a_branch_may_hide_a_line_the_operators_show_that_nothing_replaces_the_state():
    lines = (HEAD, CALL, "if k % 10 == 0:")
    assert len(find(recording(lines=lines))) == 1
    assert find(recording(lines=lines, between=pointwise("mul"))) == []


def test_a_new_state_and_a_backward_pass_end_a_sequence():
    assert find(recording(lines=(HEAD, CALL, "loss = head(h)"), between=[operator("zeros")])) == []
    name = "autograd::engine::evaluate_function: AddmmBackward0"
    passes = [op(name, 1700 * n + 10 + 200 * k + 180, 5) for n in range(3) for k in range(8)]
    assert find(recording(lines=(HEAD, CALL, "loss.backward()"), also=passes)) == []


def test_a_state_that_another_line_masks_is_silent():
    mask = pointwise("mul")
    assert find(recording(lines=(HEAD, CALL, "h = h * mask[:, k]"), between=mask)) == []
    assert len(find(recording(lines=(HEAD, CALL, "kept = h * mask[:, k]"), between=mask))) == 1


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((HEAD, "c, h = net(c, h)"), id="fed back by the call"),
        pytest.param((HEAD, "y, h = net(c, h)", "c = y.argmax(1)"), id="fed back by a line"),
        pytest.param((HEAD, "y, h = net(c, h)"), id="one input for all rounds"),
        pytest.param(("for layer, c in zip(layers, parts):", "h = layer(c, h)"), id="other layers each time"),
        pytest.param((HEAD, "h = layers[k](c[k], h)"), id="layers by their number"),
        pytest.param((HEAD, "h = net(c[k], h, k)"), id="something else that changes"),
        pytest.param((HEAD, "h = net(c[k], g)"), id="no state carried"),
        pytest.param((HEAD, "h = net(c[k], h)", "if h.norm() > 9:"), id="ended by the state"),
        pytest.param((HEAD, "y, h = net(x, h)", "x = y if random() < p else c[k]"), id="scheduled sampling"),
    ],
)
def test_loops_that_have_to_be_loops_are_silent(lines):
    assert find(recording(lines=lines)) == []


@pytest.mark.parametrize(
    "line",
    [
        "h = torch.tanh(self.layers[k](torch.cat([x[:, k], h], 1)))",
        "h = torch.tanh(F.linear(torch.cat([x[:, k], h], 1), self.weights[k]))",
        "h = torch.tanh(self.a(y) + self.b(h))",
    ],
)
def test_lines_with_other_weights_each_time_or_no_input_of_their_own_are_silent(line):
    assert find(recording(lines=(HEAD, line), inner=None)) == []


def test_without_lines_nothing_shows_that_the_inputs_are_there():
    events: list[Json] = []
    for number in range(3):
        events.append(step(number, 1700 * number, 1700))
        events += [each for k in range(8) for each in placed(CAT, 1700 * number + 10 + 200 * k)]
    assert find(facts_of(events)) == []


def test_the_backward_pass_loses_the_concatenation_and_keeps_the_rest():
    cell = [{**each, "args": {**each["args"], "Sequence number": i}} for i, each in enumerate(CAT)]
    names = ("CatBackward0", 9, 0), ("TanhBackward0", 12, 2)
    nodes = [
        op(f"autograd::engine::evaluate_function: {name}", 1700 * n + 1600 + 20 * i, length, sequence=order)
        for n in range(3)
        for i, (name, length, order) in enumerate(names)
    ]
    facts = recording(cell, also=nodes)
    (found,) = find(facts)
    assert found.edit is not None
    assert {facts.trace.name_of(row).partition(": ")[2] for row in found.edit.rows.tolist()} == {"CatBackward0"}
    assert set(found.edit.kept_ns.tolist()) == {0}


def test_on_a_device_the_kernels_of_the_products_stay():
    """Of each cell 20 µs of kernels, 15 of them in its product: the linear layer begins 10 µs after the pick of its
    input, tanh 5 µs later."""
    launched: list[Json] = []
    for number in range(3):
        for k in range(8):
            begin, first = 1700 * number + 13 + 200 * k, 2 * (8 * number + k) + 1
            launched.append(op("aten::addmm", begin + 10.1, 2))
            for offset, length, later in ((10.2, 15, 0), (15.5, 5, 1)):
                launched.append(runtime("cudaLaunchKernel", begin + offset, 0.5, correlation=first + later))
                launched.append(kernel("k", begin + 40 + 20 * later, length, correlation=first + later))
    (found,) = find(recording(also=launched))
    assert found.edit is not None
    assert sorted(set(found.edit.work_kept_ns.tolist())) == [0, 15_000]
