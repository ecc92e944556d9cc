"""Which line each operator comes from: in located steps, measured steps and the backward pass."""

from __future__ import annotations

import pytest

from profkit.derive.facts import Facts
from profkit.patterns.places.events import call_site, enclosing_function, runs_inside_a_call
from profkit.run.directory import CallSite
from profkit.trace.events import NONE
from tests.traces import annotation, facts_of, mark, memory, op, python, rows_named, runtime, step

SGD = "Optimizer.step#SGD.step"


def _sites(facts: Facts, name: str) -> list[int]:
    return facts.lines.site[rows_named(facts.trace, name)].tolist()


def test_in_a_located_step_the_innermost_mark_is_the_line():
    facts = facts_of(
        [
            step(0, 0, 100),
            mark(7, 10, 50),
            mark(8, 20, 20),
            op("aten::mul", 25, 5),
            op("aten::add", 45, 5),
            op("aten::sub", 70, 5),
            runtime("cudaLaunchKernel", 26, 2),
        ]
    )
    assert _sites(facts, "aten::mul") == [8]
    assert _sites(facts, "aten::add") == [7]
    assert _sites(facts, "aten::sub") == [NONE]
    assert _sites(facts, "cudaLaunchKernel") == [8]
    assert _sites(facts, "profkit.line#8") == [8]
    assert facts.lines.known


def test_without_marks_no_line_is_known():
    facts = facts_of([step(0, 0, 100), op("aten::mul", 25, 5)])
    assert not facts.lines.known
    assert facts.lines.site.tolist() == [NONE, NONE]


def test_measured_steps_take_the_lines_of_the_located_one():
    events = []
    for n in range(3):
        at = 100 * n
        events += [step(n, at, 90), op("aten::mul", at + 10, 5), op("aten::mul", at + 30, 5)]
        events += [op("aten::relu", at + 50, 9), op("aten::clamp_min", at + 52, 5), memory(at + 53, 64, 64 + n)]
    events += [mark(4, 208, 10), mark(5, 228, 10), mark(6, 248, 15)]
    facts = facts_of(events)
    assert _sites(facts, "aten::mul") == [4, 5] * 3
    assert _sites(facts, "aten::relu") == [6] * 3
    assert _sites(facts, "aten::clamp_min") == [6] * 3
    assert _sites(facts, "[memory]") == [6] * 3


def test_operators_in_a_different_order_are_matched_by_shape():
    small, large = {"dims": "[[4]]"}, {"dims": "[[4096]]"}
    facts = facts_of(
        [
            step(0, 0, 90),
            op("aten::mul", 10, 5, **large),
            op("aten::mul", 30, 5, **small),
            step(1, 100, 90),
            mark(1, 108, 10),
            op("aten::mul", 110, 5, **small),
            mark(2, 128, 10),
            op("aten::mul", 130, 5, **large),
        ]
    )
    assert _sites(facts, "aten::mul") == [2, 1, 1, 2]


def test_operators_are_matched_by_what_encloses_them():
    facts = facts_of(
        [
            step(0, 0, 90),
            op("aten::copy_", 10, 5),
            op("aten::to", 30, 9),
            op("aten::copy_", 32, 5),
            step(1, 100, 90),
            mark(1, 108, 16),
            op("aten::to", 110, 9),
            op("aten::copy_", 112, 5),
            mark(2, 128, 10),
            op("aten::copy_", 130, 5),
        ]
    )
    assert _sites(facts, "aten::copy_") == [2, 1, 1, 2]


def test_the_number_of_a_step_does_not_affect_matching():
    """Nine outer and one inner `mul` of one shape: matched by name alone, the inner one would shift the others."""
    events = []
    for n in range(2):
        at = 1_000 * n
        events += [step(n, at, 900), op("aten::foo", at + 10, 20), op("aten::mul", at + 15, 5, dims="[[4]]")]
        events += [op("aten::mul", at + 100 + 50 * i, 5, dims="[[4]]") for i in range(9)]
    events += [mark(50, 1_005, 30), *(mark(i, 1_095 + 50 * i, 20) for i in range(9))]
    events += [op("aten::foo", 950, 20), op("aten::mul", 955, 5, dims="[[4]]")]
    events[0] = step(0, 0, 980)
    facts = facts_of(events)
    assert _sites(facts, "aten::mul")[:10] == [50, *range(9)]


def test_lines_are_spread_in_proportion_if_the_counts_differ():
    facts = facts_of(
        [
            step(0, 0, 400),
            *(op("aten::mul", 10 + 20 * i, 5) for i in range(6)),
            step(1, 500, 400),
            mark(1, 505, 20),
            op("aten::mul", 510, 5),
            mark(2, 530, 20),
            op("aten::mul", 535, 5),
            step(2, 1_000, 400),
            op("aten::mul", 1_010, 5),
        ]
    )
    assert _sites(facts, "aten::mul") == [1, 1, 1, 2, 2, 2, 1, 2, 1]


def test_operators_missing_in_the_located_step_get_no_line():
    located = [step(1, 100, 90), mark(1, 110, 9), op("aten::mul", 112, 5)]
    facts = facts_of([step(0, 0, 90), op("aten::item", 10, 5), *located])
    assert _sites(facts, "aten::item") == [NONE]


def test_lines_are_taken_from_the_first_located_step():
    facts = facts_of(
        [
            step(0, 0, 90),
            op("aten::mul", 10, 5),
            step(1, 100, 90),
            mark(1, 108, 10),
            op("aten::mul", 110, 5),
            step(2, 200, 90),
            mark(9, 208, 10),
            op("aten::mul", 210, 5),
        ]
    )
    assert _sites(facts, "aten::mul") == [1, 1, 9]


def test_operators_of_a_thread_without_marks_get_no_line():
    events = []
    for n in range(2):
        at = 100 * n
        events += [step(n, at, 90), op("aten::mul", at + 10, 5), op("MulBackward0", at + 40, 20, tid=2)]
        events += [op("aten::mul", at + 45, 5, tid=2)]
    facts = facts_of([*events, mark(3, 108, 10)])
    assert _sites(facts, "aten::mul") == [3, 3, NONE, NONE]


def test_an_operator_of_the_located_step_outside_all_marks_has_no_line():
    facts = facts_of(
        [
            step(0, 0, 90),
            op("aten::mul", 10, 5),
            step(1, 100, 90),
            mark(1, 108, 10),
            op("aten::mul", 110, 5),
            op("aten::mul", 130, 5),
        ]
    )
    assert _sites(facts, "aten::mul") == [1, 1, NONE]


def test_operators_inside_numbered_ranges_of_the_program_are_matched_by_shape():
    events = []
    for n in range(2):
        at = 100 * n
        events += [step(n, at, 90), annotation(f"batch {n}", at + 5, 80)]
        sizes = ("[[4]]", "[[8]]") if n else ("[[8]]", "[[4]]")
        events += [op("aten::mul", at + 10 + 20 * i, 5, dims=size) for i, size in enumerate(sizes)]
    facts = facts_of([*events, mark(1, 108, 10), mark(2, 128, 10)])
    assert _sites(facts, "aten::mul") == [2, 1, 1, 2]


def test_marks_outside_every_step_locate_nothing_else():
    facts = facts_of([step(0, 0, 90), op("aten::mul", 10, 5), mark(1, 100, 20), op("aten::mul", 105, 5)])
    assert facts.steps.located.tolist() == [False]
    assert _sites(facts, "aten::mul") == [NONE, 1]


def _training_steps(backward_thread: int, node: str) -> Facts:
    events = []
    for n in range(2):
        at, first = 1_000 * n, 10 * n
        events += [
            step(n, at, 900),
            op("aten::linear", at + 20, 20, sequence=first),
            op("aten::t", at + 22, 5, sequence=first),
            op("aten::addmm", at + 30, 5, sequence=first + 1),
            op("aten::relu", at + 60, 5, sequence=first + 2),
            op(node.format("ReluBackward0"), at + 200, 50, sequence=first + 2, tid=backward_thread),
            op("aten::threshold_backward", at + 210, 9, tid=backward_thread),
            op(node.format("AddmmBackward0"), at + 300, 50, sequence=first + 1, tid=backward_thread),
            op("aten::mm", at + 310, 9, sequence=first + 2, tid=backward_thread),
            op(node.format("torch::autograd::AccumulateGrad"), at + 400, 9, tid=backward_thread),
            annotation(SGD, at + 500, 90),
            op("aten::add_", at + 510, 20, sequence=first + 3),
        ]
    events += [mark(1, 1_010, 40), mark(2, 1_055, 20), mark(3, 1_190, 290), mark(4, 1_490, 200)]
    return facts_of(events)


def test_a_backward_operator_also_has_the_line_of_its_forward_operator():
    facts = _training_steps(1, "autograd::engine::evaluate_function: {}")
    lines, trace = facts.lines, facts.trace
    assert lines.site[rows_named(trace, "aten::threshold_backward")].tolist() == [3, 3]
    assert lines.forward_site[rows_named(trace, "aten::threshold_backward")].tolist() == [2, 2]
    assert lines.forward[rows_named(trace, "aten::threshold_backward")].tolist() == rows_named(trace, "aten::relu")
    assert lines.forward_site[rows_named(trace, "aten::add_")].tolist() == [4, 4]
    assert lines.forward_site[rows_named(trace, "aten::relu")].tolist() == [2, 2]
    node = rows_named(trace, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
    assert lines.forward[node].tolist() == [NONE, NONE]
    assert lines.forward_site[node].tolist() == [3, 3]


def test_sequence_numbers_drawn_on_the_backward_thread_are_not_matched():
    """Each thread counts separately: under `create_graph` an operator inside a node has a number of its own."""
    facts = _training_steps(9, "autograd::engine::evaluate_function: {}")
    assert facts.lines.forward_site[rows_named(facts.trace, "aten::mm")].tolist() == [1, 1]
    assert facts.lines.forward[rows_named(facts.trace, "aten::mm")].tolist() == rows_named(facts.trace, "aten::addmm")


@pytest.mark.parametrize(("thread", "is_known"), [(1, True), (9, False)])
def test_a_gradient_of_a_gradient_belongs_to_the_operator_that_it_differentiates(thread, is_known):
    """The first backward pass runs with `create_graph` at line 2, so its operators have numbers; the next goes through
    them. On a thread of autograd's own they count from zero, and so tell nothing."""
    engine = "autograd::engine::evaluate_function: {}"
    events = [
        step(0, 0, 900),
        *(mark(1, 10, 40), mark(2, 100, 60), mark(3, 200, 90)),
        op("aten::tanh", 20, 20, sequence=5),
        op(engine.format("TanhBackward0"), 110, 30, sequence=5, tid=thread),
        op("aten::tanh_backward", 115, 20, sequence=8, tid=thread),
        op(engine.format("TanhBackwardBackward0"), 210, 50, sequence=8, tid=thread),
    ]
    facts = facts_of(events)
    (node,) = rows_named(facts.trace, engine.format("TanhBackwardBackward0"))
    known = rows_named(facts.trace, "aten::tanh_backward") if is_known else [NONE]
    assert facts.lines.forward[node] == known[0]
    assert not is_known or facts.lines.forward_site[node] == 2
    (first,) = rows_named(facts.trace, engine.format("TanhBackward0"))
    assert [facts.lines.forward[first]] == rows_named(facts.trace, "aten::tanh")


def test_of_forward_operators_with_the_same_number_the_last_made_the_node():
    forward = [op("aten::linear", 0, 9, sequence=4), op("aten::t", 1, 2, sequence=4)]
    facts = facts_of([*forward, op("TBackward0", 50, 9, sequence=4)])
    assert facts.lines.forward[rows_named(facts.trace, "TBackward0")].tolist() == rows_named(facts.trace, "aten::t")


def test_backward_nodes_of_2021_are_matched_without_engine_events():
    facts = _training_steps(9, "{}")
    backward = {facts.trace.name_of(row) for row in range(len(facts.trace.events)) if facts.lines.backward[row]}
    assert backward == {
        "ReluBackward0",
        "AddmmBackward0",
        "torch::autograd::AccumulateGrad",
        "aten::mm",
        "aten::threshold_backward",
    }


def test_a_range_of_the_user_named_backward_is_not_the_autograd_engine():
    facts = facts_of([annotation("MyBackward", 0, 50), op("aten::mul", 5, 5), op("aten::threshold_backward", 20, 5)])
    assert not facts.lines.backward.any()


@pytest.mark.parametrize(("later", "matched"), [(0, 1), (1, 1), (2, 0)])
def test_a_backward_pass_belongs_to_the_forward_pass_of_its_step_or_the_one_before(later, matched):
    """If calls of the model are the steps, then with L-BFGS a step begins with the backward pass of the last call."""
    facts = facts_of(
        [
            step(0, 0, 90),
            op("aten::mul", 10, 5, sequence=3),
            step(1, 100, 90),
            step(2, 200, 90),
            op("MulBackward0", 100 * later + 20, 5, sequence=3),
        ]
    )
    row = rows_named(facts.trace, "aten::mul")[0] if matched else NONE
    assert facts.lines.forward[rows_named(facts.trace, "MulBackward0")].tolist() == [row]


def test_sequence_numbers_of_any_size_are_matched():
    facts = facts_of([op("aten::mul", 10, 5, sequence=2**63 - 1), op("MulBackward0", 110, 5, sequence=2**63 - 1)])
    assert facts.lines.forward.tolist() == [NONE, 0]


def test_a_site_beyond_the_table_has_no_location():
    facts = facts_of([mark(5, 0, 9)], callsites=(CallSite("train.py", 3, "main"),))
    assert call_site(facts, 5) is None
    assert call_site(facts, NONE) is None
    assert call_site(facts, 0) == CallSite("train.py", 3, "main")


def test_the_enclosing_function_is_the_innermost_one_of_the_user():
    facts = facts_of(
        [
            python("train.py(40): <module>", 0, 500),
            python("/home/u/model.py(12): forward", 10, 200),
            python("/opt/lib/python3.11/site-packages/torch/nn/functional.py(9): relu", 20, 50),
            python("<built-in method relu>", 21, 40),
            op("aten::relu", 25, 30),
            op("aten::add", 300, 30),
            op("aten::sub", 600, 30),
            python("a(99999999999).py(1): f", 700, 50),
            op("aten::mul", 710, 5),
        ]
    )
    rows = {name: rows_named(facts.trace, f"aten::{name}") for name in ("relu", "add", "sub", "mul")}
    assert enclosing_function(facts, rows["relu"]) == CallSite("/home/u/model.py", 12, "forward")
    assert enclosing_function(facts, rows["add"]) == CallSite("train.py", 40, "<module>")
    assert enclosing_function(facts, rows["sub"]) is None
    assert enclosing_function(facts, rows["mul"]) == CallSite("a(99999999999).py", 1, "f")


def test_work_of_the_autograd_thread_belongs_to_the_caller_of_the_forward_operator():
    facts = facts_of(
        [
            step(0, 0, 200),
            python("model.py(12): forward", 5, 50),
            op("CompiledFunction", 10, 30, sequence=4),
            op("autograd::engine::evaluate_function: CompiledFunctionBackward", 100, 50, sequence=4, tid=2),
            op("triton_red_fused_sum_0", 110, 20, tid=2),
            op("aten::add_", 160, 5, tid=2),
        ]
    )
    rows = {name: rows_named(facts.trace, name) for name in ("triton_red_fused_sum_0", "aten::add_")}
    assert enclosing_function(facts, rows["triton_red_fused_sum_0"]) == CallSite("model.py", 12, "forward")
    assert enclosing_function(facts, rows["aten::add_"]) is None


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("loss = criterion(x, y)", True),
        ("y = torch.tanh(x)", False),
        ("x.tanh_()", False),
        ("y = layer(x, kind='tanh')  # tanh", True),
        ("y = layer(", True),
        ("y = layer(torch.tanh(x),", False),
        ("y = (a + b)", False),
        ("y = act[", False),
    ],
)
def test_an_operator_may_run_inside_a_call_that_does_not_name_it(source: str, inside: bool) -> None:
    facts = facts_of(
        [step(0, 0, 100), mark(0, 10, 50), op("aten::tanh", 20, 5)],
        callsites=(CallSite("net.py", 3, "forward", source),),
    )
    assert runs_inside_a_call(facts, rows_named(facts.trace, "aten::tanh")) == inside


@pytest.mark.parametrize(
    ("name", "source", "inside"),
    [
        ("aten::mul", "y = scale(*parts)", True),
        ("aten::mul", "y = scale(a * b)", False),
        ("aten::index", "y = scale([a, b])", True),
        ("aten::index", "y = scale(a[b])", False),
        ("aten::sub", "total -= scale(a)", False),
    ],
)
def test_a_symbol_counts_where_it_computes(name: str, source: str, inside: bool) -> None:
    facts = facts_of(
        [step(0, 0, 100), mark(0, 10, 50), op(name, 20, 5)], callsites=(CallSite("net.py", 3, "forward", source),)
    )
    assert runs_inside_a_call(facts, rows_named(facts.trace, name)) == inside
