"""Optimizers that loop over their parameters: when that is a fault, when an opportunity, when neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profkit.diagnosis.pipeline import read_facts
from profkit.findings.values import Kind
from profkit.rules.base import Suspicion
from profkit.rules.single_tensor_optimizer import single_tensor_optimizer
from profkit.run.directory import CallSite, Host, OptimizerUse, Run
from profkit.run.experiment import Case, Experiment
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
WEIGHT = [64, 64]
OPERATORS = (("aten::mul_", 1), ("aten::add_", 2), ("aten::add_", 2))
"""SGD with momentum: scale the momentum, add the gradient, subtract it from the parameter; tensors that each reads."""


def find(facts) -> list[Suspicion]:
    return list(single_tensor_optimizer.check(facts))


def update(
    at: float,
    parameters: int = 6,
    call: float = 2,
    shapes: bool = True,
    name: str = "SGD",
    operators: tuple[tuple[str, int], ...] = OPERATORS,
) -> list[Json]:
    """A step of 10 µs for each parameter and 10 µs besides: operators of ``call`` µs each."""
    events = [annotation(f"Optimizer.step#{name}.step", at, 10 * parameters + 10)]
    for parameter in range(parameters):
        for i, (operator, tensors) in enumerate(operators):
            dims = {"dims": [WEIGHT] * tensors, "types": ["float"] * tensors} if shapes else {}
            events.append(op(operator, at + 10 * parameter + min(3, 10 / len(operators)) * i, call, **dims))
    return events


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def and_calls(events: list[Json], call: float) -> list[Json]:
    """Beside each step's update operators that do nothing, so that what a call takes is known."""
    steps = [event["ts"] for event in events if event["name"].startswith("ProfilerStep")]
    return [*events, *(op("aten::detach", at + 90 + i, call) for at in steps for i in range(4))]


def run_with(foreach: bool | None, fused: bool | None = None) -> Run:
    return Run(optimizers=(OptimizerUse("SGD", foreach, fused, 6),))


def test_calls_are_paid_once_instead_of_once_for_each_operator_of_a_parameter():
    """18 operators of 2 µs cost nothing but their call: of the step's 70 µs a third is left."""
    facts = facts_of(steps_of(lambda at: update(at + 10)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "Optimizer.step#SGD.step")
    assert found.count == 18
    assert found.evidence == {"operators_per_parameter": 3.0, "parameters": 6}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.70 * 2 / 3, abs=1e-3)


def test_of_several_updates_in_a_step_the_time_of_all_is_told_as_all_are_saved():
    (one,) = find(facts_of(steps_of(lambda at: update(at + 10))))
    (two,) = find(facts_of(steps_of(lambda at: [*update(at + 10), *update(at + 110)], 200)))
    assert one.message == "SGD takes 70.0 µs: it runs 18 operators a step, about 3 for each of 6 parameters."
    assert two.message == (
        "SGD takes 140 µs: it runs 36 operators a step, about 3 for each of 6 parameters in each of its 2 updates."
    )
    assert (two.count, two.spent_ns) == (36, 140_000)


def test_it_hands_over_the_parameters_shapes_and_prices_the_whole_step_by_what_is_left():
    facts = facts_of(steps_of(lambda at: update(at + 10)))
    trial = find(facts)[0].trial
    assert trial is not None
    case = Case("SGD", (tuple(WEIGHT),) * 6, "float32", 1.0)
    assert trial.experiment == Experiment("fused-optimizer", (case,), to="fused")
    assert predict_saving(facts, trial.edit_of(0.1)).fraction == pytest.approx(0.70 * 0.9, abs=1e-3)


def test_without_shapes_there_is_nothing_to_run():
    facts = facts_of(steps_of(lambda at: update(at + 10, shapes=False)))
    assert [found.trial for found in find(facts)] == [None]


def test_moving_data_keeps_the_share_of_the_passes_that_a_fused_update_makes():
    """Operators on large parameters take 100 µs, on six small ones 2 µs. SGD with momentum makes 8 passes, fused 5."""

    def part(at: float) -> list[Json]:
        large = [
            op(name, at + 110 * i, 102, dims=[WEIGHT] * tensors, types=["float"] * tensors)
            for i, (name, tensors) in enumerate(OPERATORS)
        ]
        around = annotation("Optimizer.step#SGD.step", at, 400)
        return [around, *large, *update(at + 335)[1:]]

    facts = facts_of(steps_of(part, 500))
    moving = 3 * 100
    kept = (400 - moving) / 3 + 5 / 8 * moving
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((400 - kept) / 500, abs=0.01)


def test_on_a_cpu_the_default_is_an_opportunity_and_foreach_false_a_fault():
    events = steps_of(lambda at: update(at + 10))
    assert [found.kind for found in find(facts_of(events))] == [Kind.OPPORTUNITY]
    assert [found.kind for found in find(facts_of(events, run=run_with(None)))] == [Kind.OPPORTUNITY]
    assert [found.kind for found in find(facts_of(events, run=run_with(False)))] == [Kind.FAULT]
    other = Run(optimizers=(OptimizerUse("Adam", False, None, 6),))
    assert [found.kind for found in find(facts_of(events, run=other))] == [Kind.OPPORTUNITY]


@pytest.mark.parametrize(
    ("threads", "elements", "meet"),
    [
        (2, 64 * 64, True),
        (1, 64 * 64, False),
        (2, 1 << 15, False),
        (2, (1 << 15) - 1, True),
        (None, 64 * 64, False),
    ],
)
def test_threads_that_would_meet_at_each_small_parameter_leave_the_saving_in_doubt(threads, elements, meet):
    """The loop shares out operators on 32768 elements and more, a fused update every parameter."""

    def part(at: float) -> list[Json]:
        events = update(at + 10)
        large = {"dims": [[elements], [elements]], "types": ["float", "float"]}
        return [events[0], *(op(event["name"], event["ts"], event["dur"], **large) for event in events[1:])]

    host = None if threads is None else Host(cpus=2, torch_threads=threads, memory_bytes=1 << 30)
    (found,) = find(facts_of(steps_of(part), run=Run(host=host)))
    assert ("All threads then meet" in found.fix) == meet
    assert found.edit.uncertainty == (0.6 if meet else 0.3)


def test_without_threads_to_meet_foreach_and_devices_keep_their_range():
    host = Host(cpus=2, torch_threads=2, memory_bytes=1 << 30)
    asked = Run(host=host, optimizers=(OptimizerUse("RMSprop", False, None, 6),))
    (loop,) = find(facts_of(steps_of(lambda at: update(at + 5, call=1, name="RMSprop")), run=asked))
    (device,) = find(facts_of(steps_of(on_device), run=Run(host=host)))
    assert [found.edit.uncertainty for found in (loop, device)] == [0.3, 0.3]


def on_device(at: float) -> list[Json]:
    calls = [
        runtime("cudaLaunchKernel", at + 10 * p + 3 * i + 0.5, 1, correlation=int(at) + 3 * p + i + 1)
        for p in range(6)
        for i in range(3)
    ]
    kernels = [kernel("multi", call["ts"] + 5, 1.5, correlation=call["args"]["correlation"]) for call in calls]
    return [*update(at), *calls, *kernels]


def test_on_a_device_the_loop_is_a_fault():
    assert [found.kind for found in find(facts_of(steps_of(on_device)))] == [Kind.FAULT]


def test_on_a_device_what_is_left_is_gathering_twice_and_one_parameters_launches():
    """5 µs before the first operator; from there to the end of the last, at 58 µs, six parameters; 12 µs behind."""

    def gathered_first(at: float) -> list[Json]:
        events = on_device(at + 5)
        events[0] = annotation("Optimizer.step#SGD.step", at, 75)
        return events

    facts = facts_of(steps_of(gathered_first))
    (found,) = find(facts)
    kept = dict(zip(found.edit.rows.tolist(), found.edit.kept_ns.tolist(), strict=True))
    (row, *_) = rows_named(facts.trace, "Optimizer.step#SGD.step")
    assert kept[row] == pytest.approx(2 * 5_000 + 12_000 + 58_000 / 6, abs=1)


def test_on_a_device_the_kernels_of_an_update_become_one():
    facts = facts_of(steps_of(on_device))
    (found,) = find(facts)
    assert len(found.edit.work) == 4 * 18
    assert found.edit.work_kept_ns[found.edit.work_kept_ns > 0].tolist() == [1_500] * 4


def test_a_device_that_has_other_work_meanwhile_gives_nothing_back():
    def part(at: float) -> list[Json]:
        call = runtime("cudaLaunchKernel", at + 75, 2, correlation=int(at) + 900)
        busy = kernel("gemm", at + 80, 5000, correlation=int(at) + 900)
        return [*on_device(at), call, busy, runtime("cudaStreamSynchronize", at + 90, 4991)]

    facts = facts_of(steps_of(part, 5100))
    assert predict_saving(facts, find(facts)[0].edit).fraction < 0.02


def test_operators_on_all_parameters_at_once_are_silent():
    together = op("aten::_foreach_add_", 50, 5)
    assert find(facts_of(steps_of(lambda at: [*update(at), {**together, "ts": at + 61}]))) == []


@pytest.mark.parametrize(("inside", "reported"), [(True, 0), (False, 1)])
def test_sparse_gradients_are_for_the_loop_alone(inside, reported):
    """Of an optimizer that has one; a sparse tensor elsewhere in the step is another matter."""

    def part(at: float) -> list[Json]:
        return [*update(at + 10), op("aten::_nnz", at + (75 if inside else 90), 1)]

    assert len(find(facts_of(steps_of(part)))) == reported


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "MyOptimizer"])
def test_an_optimizer_that_can_do_no_other_is_silent(name):
    assert find(facts_of(steps_of(lambda at: update(at, name=name)))) == []


def test_plain_sgd_has_nothing_to_fuse():
    assert find(facts_of(steps_of(lambda at: update(at, 9, operators=(("aten::add_", 2),) * 1), 200))) == []


@pytest.mark.parametrize(("parameters", "each", "reported"), [(8, 2, 1), (5, 3, 0)])
def test_sixteen_operators_are_the_least(parameters, each, reported):
    facts = facts_of(steps_of(lambda at: update(at, parameters, operators=OPERATORS[:each])))
    assert len(find(facts)) == reported


def test_two_optimizers_are_two_findings():
    facts = facts_of(steps_of(lambda at: [*update(at), *update(at + 80, 8, name="AdamW")], 200))
    found = {facts.trace.name_of(one.rows[0]): one.evidence for one in find(facts)}
    assert found == {
        "Optimizer.step#SGD.step": {"operators_per_parameter": 3.0, "parameters": 6},
        "Optimizer.step#AdamW.step": {"operators_per_parameter": 3.0, "parameters": 8},
    }


def test_operators_that_run_for_a_few_parameters_do_not_tell_how_many_there_are():
    """Weight decay on one of six parameters: three operators and a sixth for each of them, not nineteen for one."""
    decay = op("aten::add", 0, 1, dims=[WEIGHT, WEIGHT], types=["float", "float"])
    facts = facts_of(steps_of(lambda at: [*update(at), {**decay, "ts": at + 62}]))
    assert [found.evidence["parameters"] for found in find(facts)] == [6]


@pytest.mark.parametrize(("until", "reported"), [(200, 1), (100, 0)])
def test_half_of_the_steps_are_the_least(until, reported):
    assert len(find(facts_of(steps_of(lambda at: update(at) if at < until else [])))) == reported


def test_a_closure_that_runs_the_model_inside_the_step_is_silent():
    model = op("aten::linear", 0, 3, dims=[WEIGHT, WEIGHT], types=["float", "float"])
    assert find(facts_of(steps_of(lambda at: [*update(at), {**model, "ts": at + 62}]))) == []


def test_counters_of_steps_are_no_parameters():
    counters = [op("aten::add_", 0, 1, dims=[[], []], types=["float", "Scalar"])] * 30
    facts = facts_of(steps_of(lambda at: [*update(at), *({**one, "ts": at + 61} for one in counters)]))
    assert [found.count for found in find(facts)] == [18]


def test_foreach_on_a_cpu_is_only_worth_it_where_python_and_calls_take_the_time():
    """RMSprop cannot be fused: its operators stay as they are, and what may vanish is the time between them. Half of
    the calls and twice the data are as much as before where a third of the 70 µs goes into data: 18 operators that take
    1.296 beyond a call."""
    asked = Run(optimizers=(OptimizerUse("RMSprop", False, None, 6),))

    def events(call: float) -> list[Json]:
        return steps_of(lambda at: update(at + 5, call=call, name="RMSprop"))

    facts = facts_of(events(1), run=asked)
    (found,) = find(facts)
    assert "foreach=True" in found.fix
    assert predict_saving(facts, found.edit).fraction == pytest.approx((70 - 18) * (2 / 3) / 100, abs=1e-3)
    assert len(find(facts_of(and_calls(events(2.29), 1), run=asked))) == 1
    assert find(facts_of(and_calls(events(2.31), 1), run=asked)) == []
    assert find(facts_of(events(1))) == [], "what PyTorch chose by itself on a CPU"


OWN = (CallSite("a.py", 50, "fit", "opt.step()"), CallSite("a.py", 7, "Lion.step", "p.mul_(decay).add_(m)"))


def own_optimizer(call: float, rounds: int = 6, **more: Any) -> list[Json]:
    """Four steps, after one with the program's line that calls the step, and a line in it that goes round so often."""
    around = [mark(0, 9, 73), annotation("Optimizer.step#Lion.step", 10, 71)]
    lines = [mark(1, 11.2 + 60 * i / rounds, 60 / rounds - 0.5) for i in range(rounds)]
    located = [step(0, 0, 100), *around, *lines, *update(11.5, call=call, **more)[1:]]
    later = [(step(i, 100 * i, 100), *update(100 * i + 10, call=call, name="Lion", **more)) for i in range(1, 5)]
    return [*located, *(event for events in later for event in events)]


def test_a_loop_in_the_programs_own_optimizer_is_a_fault_on_its_line():
    """The operators' 36 µs stay, and of the other 34 a third."""
    facts = facts_of(own_optimizer(call=2), callsites=OWN)
    (found,) = find(facts)
    assert found.kind is Kind.FAULT
    assert "torch._foreach_mul_" in found.fix
    assert found.trial is None
    assert set(facts.lines.site[found.rows].tolist()) == {1}
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.34 * 2 / 3, abs=2e-3)


def test_a_librarys_optimizer_is_nothing_to_rewrite():
    assert find(facts_of(own_optimizer(call=2, rounds=0), callsites=OWN)) == []


@pytest.mark.parametrize(("rounds", "reported"), [(1, False), (2, False), (3, True), (6, True)])
def test_a_line_that_calls_another_optimizers_step_does_not_go_round_with_the_parameters(rounds, reported):
    """As in Lookahead, or a class that derives from Adam."""
    assert bool(find(facts_of(own_optimizer(call=2, rounds=rounds), callsites=OWN))) == reported


@pytest.mark.parametrize(("call", "reported"), [(2.9, True), (1.5, False)])
def test_an_own_loop_whose_time_goes_into_data_is_silent(call, reported):
    """Operators of 2.9 µs that are all call, and such that spend 1.4 of it on data."""
    assert bool(find(facts_of(and_calls(own_optimizer(call=2.9), call), callsites=OWN))) == reported


def named(*operators: str) -> dict[str, Any]:
    return {"operators": tuple((f"aten::{name}", 2) for name in operators)}


ADAM = named("mul_", "addcmul_", "lerp_", "sqrt", "addcdiv_")


@pytest.mark.parametrize(
    ("operators", "reported"),
    [
        (ADAM, True),
        (named("lerp_", "lerp_", "square", "sqrt", "div"), True),
        (named("mul_", "addcmul_", "sqrt", "addcdiv_"), False),
        (named("mul_", "mul_", "addcmul_", "addcdiv_"), False),
        (named("mul_", "mul_", "add_", "sqrt", "addcdiv_"), False),
    ],
)
def test_an_own_loop_like_adams_whose_time_goes_into_data_may_be_fused(operators: dict[str, Any], reported: bool):
    """Two averages decay, one of squares, and a root divides; operators of 1.9 µs, of which 0.1 are the call."""
    found = find(facts_of(and_calls(own_optimizer(call=1.9, **operators), 0.1), callsites=OWN))
    assert [one.kind for one in found] == [Kind.OPPORTUNITY] * reported
    assert all("fused=True" in one.fix for one in found)


def test_an_own_loop_like_adams_that_takes_the_time_of_its_calls_is_a_fault():
    (found,) = find(facts_of(and_calls(own_optimizer(call=1.9, **ADAM), 1.9), callsites=OWN))
    assert (found.kind, "torch._foreach_mul_" in found.fix) == (Kind.FAULT, True)


def test_what_a_fused_update_leaves_of_an_own_loop_like_adams():
    """Operators that all take the same are taken for calls: one of five is left of the step's 70 µs."""
    facts = facts_of(and_calls(own_optimizer(call=1.9, **ADAM), 1.9 / 2), callsites=OWN)
    (found,) = find(facts)
    assert found.kind is Kind.OPPORTUNITY
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.70 * 4 / 5, abs=2e-3)


@pytest.mark.parametrize(("rounds", "line"), [(7, 11), (14, 12)])
def test_an_own_loop_is_told_at_its_head(rounds: int, line: int):
    """A line that reads like one and goes round once more than there are parameters."""
    head = CallSite("train.py", 11, "Lion.step", "for p in group['params']:")
    heads = [mark(2, 11.0 + 60 * i / rounds, 0.1) for i in range(rounds)]
    facts = facts_of([*heads, *own_optimizer(call=2)], callsites=(*OWN, head))
    (found,) = find(facts)
    assert (found.location.line if found.location else 12) == line
    assert [place.line for place in found.also] == ([OWN[1].line] if line == 11 else [])


def test_the_line_is_the_one_that_calls_the_step():
    first = [step(9, 0, 100), mark(0, 5, 90), *update(10)]
    later = steps_of(lambda at: update(at + 110))
    facts = facts_of(
        [*first, *({**e, "ts": e["ts"] + 100 * e["name"].startswith("Prof")} for e in later)],
        callsites=(CallSite("train.py", 7, "fit"),),
    )
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {0}


def test_without_shapes_an_operator_is_taken_to_make_two_and_a_half_passes():
    def part(at: float) -> list[Json]:
        large = [op(name, at + 110 * i, 102) for i, (name, _) in enumerate(OPERATORS)]
        return [annotation("Optimizer.step#SGD.step", at, 400), *large, *update(at + 335, shapes=False)[1:]]

    facts = facts_of(steps_of(part, 500))
    kept = (400 - 300) / 3 + 5 / (2.5 * 3) * 300
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx((400 - kept) / 500, abs=0.01)


def test_a_recording_of_2021_shows_sgd_with_161_parameters(corpus):
    (found,) = find(read_facts(corpus / "kineto" / "resnet50_workers0_v100.pt.trace.json.gz"))
    assert (found.count, found.evidence["parameters"], found.kind) == (483, 161, Kind.FAULT)


def on_gpu(at: float, name: str) -> list[Json]:
    """An update of six parameters with a kernel for each operator."""
    events = update(at + 10, name=name)
    for number, event in enumerate(event for event in events if event["cat"] == "cpu_op"):
        event["args"]["External id"] = correlation = int(at) + number + 1
        events += [
            runtime("cudaLaunchKernel", event["ts"] + 0.5, 1, correlation=correlation, external=correlation),
            kernel("add", event["ts"] + 2, 1, correlation=correlation, external=correlation),
        ]
    return events


@pytest.mark.parametrize(
    ("name", "torch", "advice"),
    [
        ("SGD", "2.3.0", "Pass `fused=True` to"),
        ("SGD", "2.2.2", "Pass `foreach=True` to"),
        ("SGD", None, "Pass `fused=True` (from torch 2.3 on, before that `foreach=True`) to"),
        ("Adam", "1.13.1", "Pass `fused=True` to"),
        ("AdamW", "1.13.1", "Pass `foreach=True` to"),
        ("Adagrad", "2.11.0+cu130", "Pass `foreach=True` to"),
        ("Adagrad", "2.13.0", "Pass `fused=True` to"),
        ("RMSprop", "2.13.0", "Pass `foreach=True` to"),
        ("RMSprop", "1.11.0", "Pass `foreach=True` (from torch 1.12 on, this was recorded with 1.11) to"),
    ],
)
def test_on_a_gpu_only_what_the_recorded_release_has_is_named(name, torch, advice):
    facts = facts_of(steps_of(lambda at: on_gpu(at, name)), run=Run(torch=torch))
    (found,) = find(facts)
    assert found.fix.startswith(advice)


@pytest.mark.parametrize(
    ("torch", "advice"),
    [
        ("2.4.0", "Pass `fused=True` to"),
        ("2.3.1", "Pass `foreach=True` to"),
        (None, "Pass `fused=True` (from torch 2.4 on, before that `foreach=True`) to"),
    ],
)
def test_on_a_cpu_fused_updates_came_later(torch, advice):
    asked = Run(torch=torch, optimizers=(OptimizerUse("SGD", False, None, 6),))
    (found,) = find(facts_of(steps_of(lambda at: update(at + 10, call=1)), run=asked))
    assert found.fix.startswith(advice)
