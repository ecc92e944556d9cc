"""Debug modes that were left on, found from the settings and, for anomaly mode, from what the engine does."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Change
from profkit.rules.base import Suspicion
from profkit.rules.debug_mode_on import debug_mode_on
from profkit.run.directory import CallSite, Remark, Run
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import ANOMALY_MODE_SET, DETERMINISM_SET, DOUBLES_MADE
from tests.traces import facts_of, kernel, op, rows_named, runtime, step

Json = dict[str, Any]
ENGINE = "autograd::engine::evaluate_function: "


def find(facts) -> list[Suspicion]:
    return list(debug_mode_on.check(facts))


def node(at: float, checks: int = 1, hooks: int = 0, name: str = "MulBackward0") -> list[Json]:
    """One node of 10 µs, with gradient hooks of 4 µs before it and checks of 4 µs after it."""
    events, now = [], at
    for _ in range(hooks):
        events += check(now)
        now += 4
    events += [op(name, now, 10, sequence=7), op("aten::mul", now + 1, 8)]
    now += 10
    for _ in range(checks):
        events += check(now)
        now += 4
    return [op(f"{ENGINE}{name}", at, now - at, sequence=7), *events]


def check(at: float) -> list[Json]:
    return [
        op("aten::isnan", at, 1),
        op("aten::ne", at, 1),
        op("aten::_is_any_true", at + 1, 2),
        op("aten::any", at + 1, 2),
        op("aten::item", at + 3, 1),
    ]


def steps_of(events: list[Json], count: int = 4, length: float = 100) -> list[Json]:
    shifted = [{**event, "ts": event["ts"] + length * i} for i in range(count) for event in events]
    return [*(step(i, length * i, length) for i in range(count)), *shifted]


def test_nan_checks_after_backward_nodes_are_counted_and_saved():
    facts = facts_of(steps_of([*node(10, 2), *node(40, 3)]))
    (found,) = find(facts)
    assert found.evidence == {"gradients_searched_per_step": 5, "operators_with_stack_per_step": 0}
    assert (found.count, found.location, found.rows.size) == (5, None, 0)
    assert predict_saving(facts, found.edit).fraction == 0.2


def test_anomaly_mode_is_reported_from_its_checks_even_if_the_setting_is_off():
    facts = facts_of(steps_of(node(10)), run=Run(torch="2.13", flags={"anomaly_mode": False}))
    assert len(find(facts)) == 1


@pytest.mark.parametrize(("unchecked", "reported"), [(1, 1), (2, 0)])
def test_checks_after_fewer_than_half_of_the_nodes_are_silent(unchecked, reported):
    plain = [event for i in range(unchecked) for event in node(40 + 20 * i, checks=0)]
    assert len(find(facts_of(steps_of([*node(10), *plain])))) == reported


def test_nodes_that_return_no_gradient_do_not_count():
    leaves = [event for i in range(3) for event in node(30 + 20 * i, 0, name="torch::autograd::AccumulateGrad")]
    assert len(find(facts_of(steps_of([*node(10), *leaves])))) == 1


def test_hooks_of_the_program_that_look_for_nan_are_silent():
    assert find(facts_of(steps_of([*node(10, checks=0, hooks=1), *node(40, checks=0, hooks=1)]))) == []


def test_a_program_that_checks_its_loss_for_nan_is_silent():
    assert find(facts_of(steps_of([*check(5), *node(10, checks=0)]))) == []


def forward(at: float, lead: float, duration: float = 30, sequence: int | None = 3) -> list[Json]:
    return [op("aten::add", at, duration, sequence=sequence), op("aten::empty", at + lead, 1)]


def test_formatting_the_stack_is_saved_except_the_usual_time_before_the_first_event():
    """Two operators take 21 µs until their first event. One that records no node takes 1 µs, so 2 x 20 µs are saved."""
    facts = facts_of(
        steps_of([*forward(0, 21), *forward(30, 21), *forward(60, 1, 10, sequence=None)]),
        run=Run(torch="2.13", flags={"anomaly_mode": True}),
    )
    (found,) = find(facts)
    assert found.evidence == {"gradients_searched_per_step": 0, "operators_with_stack_per_step": 2}
    assert predict_saving(facts, found.edit).fraction == 0.4
    assert "NaN." not in found.message


def test_time_beyond_twice_the_usual_formatting_time_is_kept():
    """The operators take 10, 10 and 25 µs until their first event. Of the last, 20 µs count; of each, 1 µs is kept."""
    facts = facts_of(
        steps_of([*forward(0, 10, 20), *forward(20, 10, 20), *forward(40, 25), *forward(70, 1, 10, sequence=None)]),
        run=Run(torch="2.13", flags={"anomaly_mode": True}),
    )
    assert predict_saving(facts, find(facts)[0].edit).fraction == 0.37


ON = Run(torch="2.13", flags={"anomaly_mode": True})


@pytest.mark.parametrize(("lasts", "saved", "counted"), [(30, 0.4, 2), (10, 0.3, 2), (9, 0.2, 1)])
def test_an_operator_without_inner_events_formats_for_as_long_as_the_others(lasts, saved, counted):
    """The first operator shows 20 µs of formatting, which are saved. The other saves 20 µs, or all its time if that is
    10 to 20 µs."""
    silent = op("aten::view", 40, lasts, sequence=4)
    facts = facts_of(steps_of([*forward(0, 20, 22), silent]), run=ON)
    (found,) = find(facts)
    assert found.evidence["operators_with_stack_per_step"] == counted
    assert predict_saving(facts, found.edit).fraction == pytest.approx(saved)


def test_only_the_innermost_operator_of_a_node_formats_a_stack():
    """`linear` has the sequence number of the `t` inside it. The 20 µs inside `t` are saved, less the usual 5 µs: the
    median of the 10 µs of `linear` and the 1 µs of the other operator."""
    made = [op("aten::linear", 0, 60, sequence=3), op("aten::t", 10, 40, sequence=3), op("aten::transpose", 30, 9)]
    facts = facts_of(steps_of([*made, *forward(70, 1, 10, sequence=None)]), run=ON)
    (found,) = find(facts)
    assert found.evidence["operators_with_stack_per_step"] == 1
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.145)


def test_a_line_that_ran_is_preferred_over_one_found_in_the_source():
    remarks = (Remark(DOUBLES_MADE, CallSite("a.py", 5, "load")), Remark(ANOMALY_MODE_SET, CallSite("a.py", 9, "main")))
    (found,) = find(facts_of(steps_of(node(10)), run=Run(remarks=remarks)))
    assert found.location is not None
    assert found.location.line == 9
    seen = CallSite("a.py", 2, "f", "torch.autograd.set_detect_anomaly(True)")
    (found,) = find(facts_of(steps_of(node(10)), run=Run(remarks=remarks), callsites=(seen,)))
    assert found.location is not None
    assert found.location.line == 2


def test_lines_that_switch_anomaly_mode_on_are_reported():
    sites = tuple(
        CallSite("a.py", i, "f", source)
        for i, source in enumerate(
            (
                "torch.autograd.set_detect_anomaly(False)",
                "x = 1",
                "with torch.autograd.detect_anomaly():",
                "Trainer(detect_anomaly=True)",
            )
        )
    )
    (found,) = find(facts_of(steps_of(node(10)), callsites=sites))
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (2, [3])


@pytest.mark.parametrize(
    ("source", "switches"),
    [
        ("stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))", True),
        ("with torch.autograd.set_detect_anomaly( mode = True ):", True),
        ("torch.autograd.set_detect_anomaly(args.debug)", True),
        ("torch.autograd.set_detect_anomaly( False )", False),
        ("torch.autograd.set_detect_anomaly(mode=False, check_nan=True)", False),
        ("Trainer(detect_anomaly=False, benchmark=True)", False),
        ("log('set_detect_anomaly(True)')", False),
        ("torch.autograd.set_detect_anomaly(False)  # not set_detect_anomaly(True)", False),
    ],
)
def test_a_line_that_switches_anomaly_mode_off_is_not_reported(source, switches):
    (found,) = find(facts_of(steps_of(node(10)), callsites=(CallSite("a.py", 7, "f", source),)))
    assert (found.location is not None) == switches


def test_without_checks_or_the_setting_it_is_silent():
    facts = facts_of(steps_of([*node(10, checks=0), *forward(40, 25)]), run=Run(flags={"anomaly_mode": False}))
    assert find(facts) == []


def blocking(at: float, lead: float, duration: float, correlation: int, returns: float) -> list[Json]:
    return [
        op("aten::mm", at, returns),
        runtime("cudaLaunchKernel", at, returns, correlation=correlation),
        kernel("gemm", at + lead, duration, correlation=correlation),
    ]


def launches(returns: float) -> list[Json]:
    """Each step of 100 µs launches one kernel of 40 µs that begins 5 µs later. Afterwards the host works for 10 µs."""
    events = []
    for i in range(4):
        events += [step(i, 100 * i, 100), *blocking(100 * i, 5, 40, i + 1, returns), op("aten::t", 100 * i + 80, 10)]
    return events


def test_a_blocking_launch_keeps_the_time_until_its_kernel_begins():
    facts = facts_of(launches(46), run=Run(flags={"env:CUDA_LAUNCH_BLOCKING": "1"}))
    (found,) = find(facts)
    assert found.count == 1
    assert found.edit is not None
    assert found.edit.rows.tolist() == rows_named(facts.trace, "cudaLaunchKernel")
    assert found.edit.kept_ns.tolist() == [5_000] * 4
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.41, abs=0.01)


@pytest.mark.parametrize(
    ("flags", "returns"),
    [({}, 46), ({"env:CUDA_LAUNCH_BLOCKING": "0"}, 46), ({"env:CUDA_LAUNCH_BLOCKING": "1"}, 20)],
    ids=["not set", "set to 0", "no launch waited"],
)
def test_launches_without_the_setting_or_a_wait_are_silent(flags, returns):
    assert find(facts_of(launches(returns), run=Run(flags=flags))) == []


@pytest.mark.parametrize(("mode", "reported"), [(0, 0), (1, 1), (2, 1)])
def test_sync_debug_mode_is_reported_without_a_price(mode, reported):
    sites = (
        CallSite("a.py", 3, "f", "print('set_sync_debug_mode()')"),
        CallSite("a.py", 4, "f", "torch.cuda.set_sync_debug_mode('warn')"),
    )
    found = find(facts_of(steps_of(node(10, checks=0)), run=Run(flags={"sync_debug_mode": mode}), callsites=sites))
    assert [suspicion.edit for suspicion in found] == [None] * reported
    assert [suspicion.location.line for suspicion in found if suspicion.location] == [4] * reported


def test_a_recording_made_elsewhere_without_settings_is_silent():
    assert find(facts_of([op("aten::mm", 0, 10)])) == []


def filled(at: float, by: str = "aten::empty", elements: int = 96_000) -> list[Json]:
    """A tensor that is filled as it is allocated: 40 µs in all, of which filling takes 30."""
    return [op(by, at, 40), op("aten::fill_", at + 5, 30, dims=[[elements], []], types=["float", "Scalar"])]


def test_filling_newly_allocated_memory_costs_the_time_of_writing_it():
    """Writing 384 kB takes 40 µs at 9.6 GB/s, so all of the 30 µs count. Of 144 kB, 15 µs count."""
    for elements, saved in ((96_000, 0.3), (36_000, 0.15)):
        facts = facts_of(steps_of(filled(10, elements=elements)))
        (found,) = find(facts)
        assert found.evidence == {"filled_per_step": 1, "filling_ns_per_step": 30_000}
        assert predict_saving(facts, found.edit).fraction == pytest.approx(saved, abs=1e-3)


def test_on_a_gpu_the_fill_and_its_kernel_are_saved():
    launched = [runtime("cudaLaunchKernel", 16, 5, correlation=1), kernel("FillFunctor", 25, 60, correlation=1)]
    facts = facts_of(
        [
            event
            for i in range(4)
            for event in (
                step(i, 100 * i, 100),
                *(
                    {
                        **event,
                        "ts": event["ts"] + 100 * i,
                        "args": {**event["args"], **({"correlation": i + 1} if "correlation" in event["args"] else {})},
                    }
                    for event in (*filled(10), *launched)
                ),
            )
        ]
    )
    (found,) = find(facts)
    assert (found.edit.kept_ns.tolist(), found.edit.work_kept_ns.tolist()) == ([0] * 4, [0] * 4)


@pytest.mark.parametrize("by", ["aten::full", "aten::zeros", "aten::ones_like", "aten::zero_"])
def test_operators_that_are_called_to_fill_a_tensor_are_silent(by):
    assert find(facts_of(steps_of(filled(10, by)))) == []


def test_deterministic_algorithms_without_the_filling_are_silent():
    run = Run(torch="2.13", flags={"deterministic_algorithms": True})
    assert find(facts_of(steps_of([op("aten::empty", 10, 40)]), run=run)) == []


def test_the_line_that_requests_determinism_is_reported():
    remarks = (Remark(DETERMINISM_SET, CallSite("a.py", 9, "main")),)
    (found,) = find(facts_of(steps_of(filled(10)), run=Run(torch="2.13", remarks=remarks)))
    assert found.location is not None
    assert found.location.line == 9


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("with torch.autograd.set_detect_anomaly(True):", "with torch.autograd.set_detect_anomaly(False):"),
        ("torch.autograd.set_detect_anomaly(args.debug)", None),
        ("Trainer(detect_anomaly=True)", None),
    ],
)
def test_only_a_literal_true_is_changed_to_false(source: str, after: str | None) -> None:
    facts = facts_of(steps_of(node(10)), callsites=(CallSite("a.py", 7, "f", source),))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "debug-mode-on"]
    assert found.change == (Change("a.py", 7, source, after) if after else None)
