"""Computing in float64 that makes the step longer, and the line where the doubles come from."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.rules.base import Kind, Need, Suspicion, missing_needs
from profkit.rules.float64_compute import float64_compute
from profkit.run.directory import CallSite, Rates, Remark, Run
from profkit.run.experiment import Case, Experiment
from profkit.savings.simulate import predict_saving
from profkit.source.remark_kinds import DOUBLES_ASKED_FOR, DOUBLES_BY_DEFAULT, DOUBLES_MADE
from tests.traces import annotation, facts_of, kernel, mark, op, rows_named, runtime, step

Json = dict[str, Any]
SITES = (
    CallSite("train.py", 10, "main", "x = torch.from_numpy(batch)"),
    CallSite("train.py", 11, "main", "y = model(x)"),
    CallSite("model.py", 5, "Net.forward", "return self.linear(x)"),
)


def linear(start: float, duration: float, kind: str = "double", rows: int = 64) -> Json:
    return op("aten::linear", start, duration, dims=[[rows, 64], [64, 64]], types=[kind, kind], sequence=int(start))


def find(facts) -> list[Suspicion]:
    return list(float64_compute.check(facts))


def steps_of(events_at: Any, count: int = 3) -> list[Json]:
    return [event for i in range(count) for event in [step(i, 100 * i, 100), *events_at(100 * i)]]


def test_doubles_are_reported_and_half_of_their_time_is_the_saving():
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 40), linear(at + 60, 20)]))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::linear")
    assert found.evidence["operators_per_step"] == 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.3)


def test_the_backward_pass_halves_with_its_forward_operators():
    def events(at: float) -> list[Json]:
        node = op("autograd::engine::evaluate_function: AddmmBackward0", at + 60, 30, sequence=int(at + 10))
        return [linear(at + 10, 40), node]

    facts = facts_of(steps_of(events))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.35)


def on_device(at: float) -> list[Json]:
    id_ = int(at) + 1
    return [
        linear(at + 1, 4),
        runtime("cudaLaunchKernel", at + 2, 1, correlation=id_),
        kernel("dgemm", at + 3, 90, correlation=id_),
        runtime("cudaStreamSynchronize", at + 6, 87),
    ]


def test_on_a_device_half_of_the_kernel_time_is_saved():
    facts = facts_of(steps_of(on_device))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.45)


OPERATIONS, ELEMENTS = 2 * 64**3, 3 * 64**2
"""The operations and the elements of a product of two 64 x 64 matrices."""


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        # Doubles have 1/32 of the arithmetic rate. In floats the product is bound by memory.
        ("Tesla T4", (4 * ELEMENTS / 320e9) / (OPERATIONS / 0.253e12)),
        # In both types the product is bound by memory, and floats have half of the bytes.
        ("Tesla V100-SXM2-16GB", 0.5),
        ("NVIDIA GeForce RTX 4090", (4 * ELEMENTS / 1008e9) / (OPERATIONS / 1.29e12)),
        ("a GPU that nobody knows", 0.5),
    ],
)
def test_on_a_known_gpu_the_roofline_sets_the_remaining_time(name, kept):
    facts = facts_of(steps_of(on_device), deviceProperties=[{"name": name}])
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(0.9 * (1 - kept), abs=2e-5)


def large(at: float, name: str = "dgemm") -> list[Json]:
    """Like ``on_device``, with a product of two 960 x 960 matrices, which takes 90 µs on an A100."""
    shapes = {"dims": [[960, 960], [960, 960]], "types": ["double", "double"], "sequence": int(at)}
    return [
        op("aten::linear", at + 1, 4, **shapes),
        *({**event, "name": name} if event["name"] == "dgemm" else event for event in on_device(at)[1:]),
    ]


@pytest.mark.parametrize(("precision", "kept"), [("highest", 1.0), ("high", 2 * 960**3 / 156e12 / 0.75 / 90e-6)])
def test_doubles_as_fast_as_floats_are_silent_unless_floats_may_use_tf32(precision, kept):
    """TF32 has eight times the rate, and a product reaches three quarters of it."""
    facts = facts_of(
        steps_of(large),
        run=Run(flags={"matmul_precision": precision}),
        deviceProperties=[{"name": "NVIDIA A100-SXM4-40GB"}],
    )
    savings = [predict_saving(facts, found.edit).fraction for found in find(facts)]
    assert savings == ([] if kept == 1.0 else [pytest.approx(0.9 * (1 - kept), abs=2e-5)])


OLD, OWN = "cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1", "cutlass_90_tensorop_d1688gemm_64x32_16x4_tn_align1"


@pytest.mark.parametrize(
    ("device", "kernel_name", "kept"),
    [("NVIDIA H100 80GB HBM3", OLD, 0.5), ("NVIDIA H100 80GB HBM3", OWN, None), ("NVIDIA A100-SXM4-40GB", OLD, None)],
)
def test_ampere_kernels_on_hopper_reach_half_of_its_double_rate(device: str, kernel_name: str, kept: float | None):
    """At 90 µs the product is slow enough that the rate of floats does not matter."""
    facts = facts_of(steps_of(lambda at: large(at, kernel_name)), deviceProperties=[{"name": device}])
    savings = [predict_saving(facts, found.edit).fraction for found in find(facts)]
    assert savings == ([] if kept is None else [pytest.approx(0.9 * (1 - kept), abs=2e-5)])


def test_on_a_cpu_measured_rates_price_the_forward_and_backward_pass():
    """In both types the product is bound by arithmetic, which takes floats a quarter of the time."""
    rates = Rates("some", 1e10, {"float64": 1e10, "float32": 4e10})

    def events(at: float) -> list[Json]:
        node = op("autograd::engine::evaluate_function: AddmmBackward0", at + 60, 30, sequence=int(at + 10))
        return [linear(at + 10, 40), node]

    facts = facts_of(steps_of(events), run=Run(rates=rates))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.7 * 0.75)
    assert found.trial is not None
    assert found.trial.experiment.backward
    assert predict_saving(facts, found.trial.edit_of(0.1)).fraction == pytest.approx(0.7 * 0.9)


def test_the_experiment_runs_the_costliest_operators():
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 40), linear(at + 50, 30, rows=32), linear(at + 80, 5)]))
    trial = find(facts)[0].trial
    assert trial is not None
    assert trial.experiment == Experiment(
        "narrower-type",
        (
            Case("linear", ((64, 64), (64, 64)), "float64", 2.0, recorded_ns=45_000),
            Case("linear", ((32, 64), (64, 64)), "float64", 1.0, recorded_ns=30_000),
        ),
        to="float32",
    )
    assert predict_saving(facts, trial.edit_of(0.2)).fraction == pytest.approx(0.75 * 0.8)
    assert predict_saving(facts, trial.edit_of(1.5)).fraction == 0


def test_operators_that_cannot_be_run_again_and_take_most_of_the_time_prevent_an_experiment():
    sort = {"dims": [[8192], []], "types": ["double", "Scalar"]}
    facts = facts_of(steps_of(lambda at: [linear(at + 1, 30), op("aten::sort", at + 40, 31, **sort)]))
    assert find(facts)[0].trial is None


def test_floats_are_silent():
    assert find(facts_of(steps_of(lambda at: [linear(at + 10, 80, kind="float")]))) == []


def test_a_compiled_region_with_one_double_among_its_tensors_is_silent():
    tensors = {"dims": [[64, 64], [64]], "types": ["float", "double"]}
    assert find(facts_of(steps_of(lambda at: [op("CompiledFunction", at, 90, **tensors)]))) == []


def test_zero_dimensional_doubles_are_silent():
    scaled = {"dims": [[64, 64], []], "types": ["float", "double"]}
    assert find(facts_of(steps_of(lambda at: [op("aten::mul", at, 90, **scaled)]))) == []


def test_casting_doubles_to_floats_is_silent():
    def events(at: float) -> list[Json]:
        cast = op("aten::to", at, 40, dims=[[256, 256], []], types=["double", "Scalar"], concrete=["", "6"])
        return [cast, linear(at + 50, 40, kind="float")]

    assert find(facts_of(steps_of(events))) == []


def test_doubles_inside_an_optimizer_are_silent():
    facts = facts_of(steps_of(lambda at: [annotation("Optimizer.step#Adam.step", at, 90), linear(at + 1, 80)]))
    assert find(facts) == []


@pytest.mark.parametrize(
    ("cast_at", "solver", "reported"),
    [
        (5, "aten::linalg_cholesky", False),
        (5, "aten::relu", True),
        (15, "aten::linalg_cholesky", True),
        (None, "aten::linalg_cholesky", True),
    ],
)
def test_casting_to_doubles_before_a_matrix_solver_is_silent(cast_at: int | None, solver: str, reported: bool):
    shape, to_double = {"dims": [[64, 64]], "types": ["double"]}, ["", "7", "", "", "False", "False", ""]

    def events(at: float) -> list[Json]:
        cast = op("aten::to", at + (cast_at or 0), 2, dims=[[64, 64]], types=["float"], concrete=to_double)
        return [*([cast] if cast_at else []), linear(at + 10, 41), op(solver, at + 52, 40, **shape)]

    assert bool(find(facts_of(steps_of(events)))) is reported


def test_casting_what_is_double_already_makes_no_doubles():
    shape, to_double = {"dims": [[64, 64]], "types": ["double"]}, ["", "7", "", "", "False", "False", ""]

    def events(at: float) -> list[Json]:
        cast = op("aten::to", at + 5, 2, concrete=to_double, **shape)
        return [cast, linear(at + 10, 41), op("aten::linalg_cholesky", at + 52, 40, **shape)]

    assert find(facts_of(steps_of(events)))


@pytest.mark.parametrize(
    ("default", "solver", "reported"),
    [
        ("float64", "aten::linalg_cholesky", False),
        ("float64", "aten::relu", True),
        ("float32", "aten::linalg_cholesky", True),
    ],
)
def test_doubles_by_default_in_a_program_with_a_matrix_solver_are_silent(default: str, solver: str, reported: bool):
    def events(at: float) -> list[Json]:
        return [linear(at + 10, 41), op(solver, at + 52, 40, dims=[[64, 64]], types=["double"])]

    facts = facts_of(steps_of(events), run=Run(flags={"default_dtype": default}))
    assert bool(find(facts)) is reported


@pytest.mark.parametrize(
    ("kind", "solver", "reported"),
    [
        (DOUBLES_ASKED_FOR, "aten::linalg_cholesky", False),
        (DOUBLES_BY_DEFAULT, "aten::linalg_solve", False),
        (DOUBLES_ASKED_FOR, "aten::relu", True),
        (DOUBLES_MADE, "aten::linalg_cholesky", True),
    ],
)
def test_doubles_requested_in_a_program_with_a_matrix_solver_are_silent(kind: str, solver: str, reported: bool):
    def events(at: float) -> list[Json]:
        return [linear(at + 10, 41), op(solver, at + 52, 40, dims=[[64, 64]], types=["double"])]

    made = Remark(kind, CallSite("train.py", 3, "<module>", "x = torch.from_numpy(table)  # double"))
    assert bool(find(facts_of(steps_of(events), run=Run(remarks=(made,))))) is reported


@pytest.mark.parametrize(("product_us", "reported"), [(39, False), (41, True)])
def test_a_step_that_mostly_solves_needs_the_digits(product_us: float, reported: bool):
    """As of Newton's method on a matrix that NumPy made. The matrix of a network's loss, solved besides, does not."""

    def events(at: float) -> list[Json]:
        return [linear(at + 1, product_us), op("aten::linalg_solve", at + 50, 40, dims=[[64, 64]], types=["double"])]

    assert bool(find(facts_of(steps_of(events)))) is reported


@pytest.mark.parametrize(("duration", "reported"), [(2.0, True), (1.9, False)])
def test_savings_below_one_percent_of_the_step_are_silent(duration: float, reported: bool):
    assert bool(find(facts_of(steps_of(lambda at: [linear(at, duration)])))) is reported


@pytest.mark.parametrize(("elements", "reported"), [(4096, True), (4095, False)])
def test_small_elementwise_operators_are_silent(elements: int, reported: bool):
    add = {"dims": [[elements], [elements]], "types": ["double", "double"]}
    assert bool(find(facts_of(steps_of(lambda at: [op("aten::add", at, 50, **add)])))) is reported


def test_the_line_that_made_a_tensor_from_the_array_is_reported():
    located = [step(9, 300, 100), mark(0, 305, 3), mark(1, 310, 60), mark(2, 315, 50), linear(320, 40)]
    facts = facts_of([*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=SITES)
    (found,) = find(facts)
    assert found.location is not None
    assert found.location.line == 10


def test_the_call_of_the_model_is_reported_when_no_line_made_the_doubles():
    located = [step(9, 300, 100), mark(1, 310, 60), mark(2, 315, 50), linear(320, 40)]
    facts = facts_of([*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=SITES)
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 11)
    assert {place.file for place in found.also} == {"model.py"}


def places_with(*remarks: tuple[str, int, str, str], **flags: str) -> list[int]:
    """The lines of the finding. The first operator on doubles runs at line 11 of train.py, ``y = model(x)``."""
    located = [step(9, 300, 100), mark(1, 310, 60), linear(320, 40)]
    given = tuple(Remark(kind, CallSite("train.py", line, function, text)) for kind, line, function, text in remarks)
    facts = facts_of(
        [*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=SITES, run=Run(remarks=given, flags=flags)
    )
    (found,) = find(facts)
    return [place.line for place in (found.location, *found.also) if place is not None]


def test_the_only_line_before_the_loop_that_makes_doubles_is_reported():
    assert places_with((DOUBLES_MADE, 5, "load", "return torch.from_numpy(table)"))[0] == 5
    conversion = (DOUBLES_ASKED_FOR, 3, "main", "net = Net().double()")
    assert places_with((DOUBLES_MADE, 5, "load", "return torch.from_numpy(table)"), conversion)[0] == 5
    assert places_with(conversion)[0] == 3


@pytest.mark.parametrize(
    ("function", "features", "place"),
    [
        ("main", "x", 6),
        ("<module>", "x", 6),
        ("main", "z", 11),
        ("load", "x", 6),
        ("load", "z", 11),
        ("main", "note = 'x'; z", 11),
    ],
)
def test_of_several_lines_the_one_whose_variable_the_step_reads_is_reported(function: str, features: str, place: int):
    """The line of the labels comes first in the file, and its text does not say that they are integers."""
    labels = (DOUBLES_MADE, 5, "main", "labels = torch.from_numpy(classes)")
    data = (DOUBLES_MADE, 6, function, f"{features} = torch.from_numpy(table)")
    places = places_with(labels, data)
    assert (places[0], set(places) >= {5, 6}) == (place, True)


def test_of_several_lines_the_only_one_that_a_function_returns_is_reported():
    here = (DOUBLES_MADE, 5, "load", "return torch.from_numpy(table)")
    labels = (DOUBLES_MADE, 6, "main", "labels = torch.from_numpy(classes)")
    assert places_with(here, labels)[0] == 5
    assert places_with(here, (DOUBLES_MADE, 8, "load_labels", "return torch.from_numpy(classes)"))[0] == 11


def test_the_call_of_the_model_is_reported_when_a_function_returns_doubles_of_two_lines():
    """Either line may have made what the step reads."""
    features = (DOUBLES_MADE, 5, "setup", "features = torch.from_numpy(table)")
    both = (DOUBLES_MADE, 6, "setup", "return Net().double(), features")
    places = places_with(features, both)
    assert (places[0], set(places) >= {5, 6}) == (11, True)
    assert places_with((DOUBLES_MADE, 5, "setup", "labels = torch.from_numpy(classes)"), both)[0] == 6


def test_the_line_that_sets_the_default_to_double_is_reported_if_it_is_in_effect():
    remarks = (
        (DOUBLES_MADE, 6, "main", "x = torch.from_numpy(table)"),
        (DOUBLES_BY_DEFAULT, 2, "<module>", "torch.set_default_dtype(torch.float64)"),
    )
    assert places_with(*remarks, default_dtype="float64")[0] == 2
    assert places_with(*remarks, default_dtype="float32")[0] == 6


@pytest.mark.parametrize("line", ["x = batch  # torch.from_numpy, double", "log('as_tensor')", "x = x.to('cuda')"])
def test_comments_strings_and_moves_do_not_count_as_making_doubles(line: str):
    located = [step(9, 300, 100), mark(0, 305, 3), mark(1, 310, 60), mark(2, 315, 50), linear(320, 40)]
    sites = (CallSite("train.py", 10, "main", line), *SITES[1:])
    (found,) = find(facts_of([*steps_of(lambda at: [linear(at + 20, 40)]), *located], callsites=sites))
    assert found.location is not None
    assert found.location.line == 11


@pytest.mark.parametrize(("flags", "advice"), [({}, "from_numpy"), ({"default_dtype": "float64"}, "set_default_dtype")])
def test_the_advice_names_what_made_the_doubles(flags, advice):
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 40)]), run=Run(flags=flags))
    (found,) = find(facts)
    assert advice in found.fix


@pytest.mark.parametrize(
    ("default", "kind", "severity"), [("float32", Kind.FAULT, "high"), ("float64", Kind.OPPORTUNITY, "medium")]
)
def test_doubles_that_the_program_asks_for_are_an_opportunity_and_never_of_high_severity(default, kind, severity):
    flags = {"default_dtype": default}
    facts = facts_of(steps_of(lambda at: [linear(at + 10, 80)]), run=Run(torch="2.13", trace="t", flags=flags))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "float64-compute"]
    assert (found.kind, found.severity.value) == (kind, severity)


def test_without_shapes_it_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::linear", 0, 90)])
    assert missing_needs(facts, float64_compute.needs) == [Need.SHAPES]
