"""Chains of elementwise operators: what makes one, what ends one, and what a single pass would cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from profkit.findings.values import Kind
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.unfused_pointwise import unfused_pointwise
from profkit.run.directory import CallSite, Host, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, kernel, mark, memcpy, memory, op, rows_named, runtime, step

Json = dict[str, Any]
LARGE = [256, 256]
"""64 Ki elements: the smallest that counts."""
SHARE = 2.25 / 7
"""`relu(2 * x) + x` reads four tensors and writes three; one pass reads one and a quarter, and writes one."""
SITES = tuple(CallSite("net.py", line, "act") for line in range(40))


def find(facts) -> list[Suspicion]:
    return list(unfused_pointwise.check(facts))


def scale(at: float, shape: list[int] = LARGE, name: str = "aten::mul", **more: Any) -> Json:
    return op(name, at, 20, dims=[shape, []], types=["float", "Scalar"], **more)


def relu(at: float, shape: list[int] = LARGE, name: str = "aten::relu", **more: Any) -> Json:
    return op(name, at, 20, dims=[shape], types=["float"], **more)


def add(at: float, shape: list[int] = LARGE, other: list[int] | None = None, **more: Any) -> Json:
    return op("aten::add", at, 20, dims=[shape, other or shape, []], types=["float", "float", "Scalar"], **more)


def formula(at: float, shape: list[int] = LARGE) -> list[Json]:
    """`relu(2 * x) + x`: three operators of 20 µs, 2 µs apart, 64 µs in all."""
    return [scale(at, shape), relu(at + 22, shape), add(at + 44, shape)]


def steps_of(part: Callable[[float], list[Json]], length: float = 100, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_a_chain_takes_the_time_of_one_pass_and_pythons_time_between_vanishes():
    facts = facts_of(steps_of(lambda at: formula(at + 10)))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::mul", "aten::relu", "aten::add")
    assert found.count == 1
    assert found.evidence["operators_in_chain"] == 3
    assert found.evidence["moved_bytes_per_step"] == 7 * 4 * 256 * 256
    assert found.evidence["fused_bytes_per_step"] == int(2.25 * 4 * 256 * 256)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((64 - 60 * SHARE) / 100, abs=1e-3)


def test_it_is_an_opportunity():
    assert unfused_pointwise.kind is Kind.OPPORTUNITY


@pytest.mark.parametrize(("shape", "reported"), [([256, 256], 1), ([255, 257], 0)])
def test_64_ki_elements_are_the_least(shape, reported):
    assert len(find(facts_of(steps_of(lambda at: formula(at + 10, shape))))) == reported


def test_one_operator_of_two_tensors_repeated_is_no_chain():
    """A benchmark of `a + b`, for all that the recording says; with another operator between, it may be a formula."""
    assert find(facts_of(steps_of(lambda at: [add(at + 10), add(at + 32), add(at + 54)]))) == []
    assert len(find(facts_of(steps_of(lambda at: [add(at + 10), relu(at + 32), add(at + 54)])))) == 1


def test_two_operators_are_no_chain():
    assert find(facts_of(steps_of(lambda at: formula(at + 10)[:2]))) == []


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(op("aten::mm", 32, 5, dims=[LARGE, LARGE], types=["float", "float"]), id="a product"),
        pytest.param(op("aten::sum", 32, 5, dims=[LARGE], types=["float"]), id="a reduction"),
        pytest.param(relu(32, [512, 256]), id="another size"),
    ],
)
def test_other_work_ends_a_chain(between):
    def part(at: float) -> list[Json]:
        return [scale(at + 10), {**between, "ts": between["ts"] + at}, relu(at + 60), add(at + 80)]

    assert find(facts_of(steps_of(part))) == []


def test_a_reshape_that_copies_ends_a_chain_and_a_view_does_not():
    def part(copies: bool) -> Callable[[float], list[Json]]:
        def events(at: float) -> list[Json]:
            reshape = [op("aten::reshape", at + 30, 5, dims=[LARGE], types=["float"])]
            copy = [op("aten::clone", at + 31, 3, dims=[LARGE], types=["float"])] if copies else []
            return [scale(at + 10), *reshape, *copy, relu(at + 40), add(at + 60)]

        return events

    assert find(facts_of(steps_of(part(copies=True)))) == []
    assert len(find(facts_of(steps_of(part(copies=False))))) == 1


def test_a_small_operator_in_between_joins_the_chain():
    """The square root of a variance, say: it costs a dispatch, and the compiler takes it in."""

    def part(at: float) -> list[Json]:
        return [scale(at + 1), relu(at + 22, [256]), relu(at + 44), add(at + 66)]

    (found,) = find(facts_of(steps_of(part)))
    assert found.evidence["operators_in_chain"] == 3


def test_a_smaller_tensor_that_is_broadcast_belongs_to_the_chain():
    """Its result is the large one; of the small input only its own bytes are read."""
    facts = facts_of(steps_of(lambda at: [scale(at + 1), relu(at + 22), add(at + 44, [1, 256], LARGE)]))
    (found,) = find(facts)
    assert found.evidence["moved_bytes_per_step"] == 4 * (6 * 256 * 256 + 256)


def test_other_work_of_python_in_between_ends_a_chain():
    def part(gap: float) -> Callable[[float], list[Json]]:
        return lambda at: [scale(at), relu(at + 20), add(at + 40 + gap)]

    assert len(find(facts_of(steps_of(part(199), 400)))) == 1
    assert find(facts_of(steps_of(part(201), 400))) == []


@pytest.mark.parametrize(
    ("gap", "freed_bytes", "chains"),
    [(230, 0, 0), (230, 128 << 10, 1), (233, 128 << 10, 0)],
    ids=["nothing-is-freed", "for-as-long-as-freeing-takes", "longer-than-that"],
)
def test_freeing_what_a_formula_no_longer_needs_does_not_end_a_chain(gap, freed_bytes, chains):
    """Giving 32 pages back takes 32 µs at most."""

    def part(at: float) -> list[Json]:
        blocks = [memory(at - 2, freed_bytes, 64), memory(at + 40, -freed_bytes, 64)] if freed_bytes else []
        return [scale(at), relu(at + 20), *blocks, add(at + 40 + gap)]

    assert len(find(facts_of(steps_of(lambda at: part(at + 10), 500)))) == chains


@pytest.mark.parametrize("around", ["Optimizer.step#Adam.step", "enumerate(DataLoader)#_BaseDataLoaderIter.__next__"])
def test_an_optimizer_and_a_loader_are_silent(around):
    assert find(facts_of(steps_of(lambda at: [annotation(around, at + 1, 90), *formula(at + 10)]))) == []


def function(name: str, dur: float = 50, dtype: str = "float") -> Callable[[float], list[Json]]:
    """`relu`'s place is taken by a function of 50 µs, of which 20 are what `mul` takes to move as many bytes."""

    def part(at: float) -> list[Json]:
        slow = op(f"aten::{name}", at + 32, dur, dims=[LARGE], types=[dtype])
        return [scale(at + 10), slow, add(at + 34 + dur)]

    return part


def test_the_arithmetic_of_what_takes_longer_than_moving_the_data_stays():
    """Once it also waits for memory."""
    facts = facts_of(steps_of(lambda at: function("exp", 50 if at else 56)(at), length=200))
    (found,) = find(facts)
    kept = (4 * (60 * SHARE + 30) + 6 * SHARE) / 4
    assert predict_saving(facts, found.edit).fraction == pytest.approx((95.5 - kept) / 200, abs=1e-3)


def tanh(alone: float, dtype: str = "float", name: str = "aten::tanh") -> Callable[[float], list[Json]]:
    """A `tanh` that takes no longer than an operator which only moves its data; the chain spans 366 µs beside it."""

    def part(at: float) -> list[Json]:
        slow = op(name, at + 252, alone, dims=[LARGE], types=["float"])
        events = [{**scale(at), "dur": 250}, slow, {**add(at + alone + 254), "dur": 116}]
        return json.loads(json.dumps(events).replace('"float"', f'"{dtype}"'))

    return part


@pytest.mark.parametrize(
    ("alone", "dtype", "threads", "inside"),
    [
        (20, "float", 1, 5.5 * 20),
        (200, "float", 1, 2.4 * 65.536),
        (200, "float", 2, 2.4 * 65.536 / 2),
        (200, "float", 64, 2.4 * 65.536 / 2),
        (200, "double", 2, 2.4 * 65.536),
    ],
    ids=["fast-alone", "slow-alone", "two-threads", "more-threads-than-an-operator-uses", "double"],
)
def test_a_tanh_inside_a_fused_kernel_takes_what_sleef_takes(alone, dtype, threads, inside):
    """Of 65,536 numbers: five and a half times as long as MKL's, but no more than 2.4 ns a number and thread."""
    run = Run(host=Host(64, threads, 8 << 30))
    facts = facts_of(steps_of(tanh(alone, dtype), 700), run=run)
    saving = predict_saving(facts, find(facts)[0].edit)
    assert saving.fraction == pytest.approx((370 + alone - inside - (366 + alone) * SHARE) / 700, abs=2e-3)


def test_a_sine_takes_as_long_inside_a_fused_kernel_as_alone():
    facts, sine = (facts_of(steps_of(tanh(30, name=name), 700)) for name in ("aten::tanh", "aten::sin"))
    assert predict_saving(sine, find(sine)[0].edit).fraction == pytest.approx((400 - 396 * SHARE) / 700, abs=2e-3)
    assert find(facts)[0].edit.uncertainty > find(sine)[0].edit.uncertainty


@pytest.mark.parametrize(("waited", "arithmetic"), [(0, 64), (64, 0), (66, 64)])
def test_the_first_write_to_new_memory_is_no_arithmetic(waited, arithmetic):
    """Each `exp` takes 84 µs. Where one `mul` took 64 more than the other three, so did each `exp`; with 66 more there
    would be no time left to move its data."""

    def part(at: float) -> list[Json]:
        more = 0 if at else waited
        slow = op("aten::exp", at + 32 + more, 84, dims=[LARGE], types=["float"])
        return [{**scale(at + 10), "dur": 20 + more}, slow, add(at + 118 + more)]

    facts = facts_of(steps_of(part, 250))
    kept = (124 - arithmetic + waited / 4) * SHARE + arithmetic
    saving = predict_saving(facts, find(facts)[0].edit)
    assert saving.fraction == pytest.approx((128 + waited / 4 - kept) / 250, abs=2e-3)


@pytest.mark.parametrize(
    ("name", "dtype", "reported"),
    [
        ("tanh", "float", 0),
        ("tanh", "double", 0),
        ("tanh", "c10::BFloat16", 1),
        ("exp", "float", 1),
    ],
)
def test_what_fusion_would_not_make_faster_is_silent(name, dtype, reported):
    """Three operators of 20 µs, of which a tanh alone would take 110."""
    assert len(find(facts_of(steps_of(function(name, 20, dtype))))) == reported


def test_an_average_of_weights_kept_in_place_is_silent():
    """`average.mul_(d).add_(weight)` for one parameter after another: nothing of it can be fused into one pass."""

    def part(at: float) -> list[Json]:
        return [
            event
            for i in range(2)
            for event in (
                scale(at + 45 * i, name="aten::mul_"),
                op("aten::add_", at + 45 * i + 22, 20, dims=[LARGE, LARGE, []], types=["float", "float", "Scalar"]),
            )
        ]

    assert find(facts_of(steps_of(part))) == []


def test_one_function_applied_over_and_over_is_a_chain():
    """`x.cos().cos().cos()` reads and writes three times what one pass reads and writes once."""
    facts = facts_of(steps_of(lambda at: [relu(at + 22 * i, name="aten::cos") for i in range(3)]))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx((64 - 60 * 2 / 6) / 100, abs=1e-3)


def test_a_formula_in_place_is_a_chain():
    def part(at: float) -> list[Json]:
        return [scale(at, name="aten::mul_"), relu(at + 22, name="aten::relu_"), scale(at + 44, name="aten::add_")]

    assert len(find(facts_of(steps_of(part)))) == 1


def test_a_dropout_that_has_nothing_to_do_does_not_count():
    def part(active: bool) -> Callable[[float], list[Json]]:
        def events(at: float) -> list[Json]:
            inside = [op("aten::native_dropout", at + 12, 6, dims=[LARGE], types=["float"])] if active else []
            return [
                op("aten::dropout", at + 10, 10, dims=[LARGE, [], []], types=["float", "Scalar", "Scalar"]),
                *inside,
                relu(at + 30),
                add(at + 52),
            ]

        return events

    assert len(find(facts_of(steps_of(part(active=True))))) == 1
    assert find(facts_of(steps_of(part(active=False)))) == []


def test_the_backward_nodes_of_a_chain_shrink_with_it():
    def part(at: float) -> list[Json]:
        forward = [
            {**event, "args": {**event["args"], "Sequence number": int(at) + i}} for i, event in enumerate(formula(at))
        ]
        nodes = [op("autograd::engine::evaluate_function: ReluBackward0", at + 70, 20, sequence=int(at) + 1)]
        return [*forward, *nodes]

    facts = facts_of(steps_of(part))
    expected = (64 - 60 * SHARE + 20 * (1 - SHARE)) / 100
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(expected, abs=1e-3)


def test_on_a_cpu_a_fused_backward_pass_computes_the_functions_once_more():
    """`exp` computes for 30 of its 50 µs."""

    def part(at: float) -> list[Json]:
        forward = [
            {**event, "args": {**event["args"], "Sequence number": int(at) + i}}
            for i, event in enumerate(function("exp")(at))
        ]
        return [*forward, op("autograd::engine::evaluate_function: ExpBackward0", at + 120, 60, sequence=int(at) + 1)]

    facts = facts_of(steps_of(part, 200))
    expected = (94 - 60 * SHARE - 30 + 60 * (1 - SHARE) - 30) / 200
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("trainer.train()", True),
        ("return 0.5 * torch.tanh(x)", False),
        ("y = x.relu()", False),
        ("y = a + b", False),
        ("y = act(x[0])", True),
    ],
)
def test_a_formula_of_a_library_is_told_by_a_line_that_calls_and_writes_down_none_of_it(source, inside):
    sites = (CallSite("net.py", 3, "act", source),)
    facts = facts_of(
        [
            step(9, 0, 100),
            mark(0, 5, 80),
            *formula(10),
            *(event for i in range(1, 5) for event in (step(i, 100 * i, 100), *formula(100 * i + 10))),
        ],
        callsites=sites,
    )
    (found,) = find(facts)
    assert found.fix.startswith("The formula is not on this line") == inside


def test_on_a_device_the_kernels_become_one_and_the_launches_too():
    """The device is the bottleneck: three kernels of 100 µs take the share of one pass."""

    def part(at: float) -> list[Json]:
        calls = [runtime("cudaLaunchKernel", at + 12 + 22 * i, 5, correlation=int(at) + i + 1) for i in range(3)]
        kernels = [kernel("elementwise", at + 20 + 100 * i, 100, correlation=int(at) + i + 1) for i in range(3)]
        return [*formula(at + 10), *calls, *kernels, runtime("cudaStreamSynchronize", at + 90, 231)]

    facts = facts_of(steps_of(part, 330))
    expected = 300 * (1 - SHARE) / 330
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(expected, abs=0.02)


def test_a_copy_between_devices_is_no_elementwise_work():
    def part(at: float) -> list[Json]:
        to = op("aten::to", at + 10, 20, dims=[LARGE, []], types=["float", "Scalar"])
        copy = op("aten::_to_copy", at + 11, 15, dims=[LARGE], types=["float"])
        call = runtime("cudaMemcpyAsync", at + 12, 5, correlation=int(at) + 1)
        moved = memcpy("Memcpy HtoD (Pageable -> Device)", at + 15, 5, correlation=int(at) + 1)
        return [to, copy, call, moved, relu(at + 32), add(at + 54)]

    assert find(facts_of(steps_of(part))) == []


def test_a_formula_over_near_lines_is_one_finding_and_far_lines_are_two():
    def located(second: int) -> list[Json]:
        twice = [*formula(0), op("aten::sum", 66, 5, dims=[LARGE], types=["float"]), *formula(82)]
        marks = [mark(3, 0, 21), mark(4, 22, 43), mark(second, 80, 70)]
        later = steps_of(lambda at: [{**event, "ts": event["ts"] + at} for event in twice], 200)
        return [step(9, 0, 200), *marks, *twice, *({**event, "ts": event["ts"] + 200} for event in later)]

    (near,) = find(facts_of(located(7), callsites=SITES))
    assert (near.location.line, [place.line for place in near.also]) == (7, [4, 3])
    far = find(facts_of(located(8), callsites=SITES))
    assert sorted(found.location.line for found in far) == [4, 8]


@pytest.mark.parametrize(
    ("lines", "calls", "beside", "known"),
    [
        ([3, 4], [0, 0], [], [20, 3, 4]),  # the function is the formula: what calls it is to change
        ([3, 4], [0, 0], [op("aten::mm", 150, 5)], [3, 4]),  # it does something else too
        ([3, 4], [0, 1], [], [3, 4]),  # it is called from two lines
        ([3, 3], [0, 0], [], [3]),  # the formula is one line
    ],
)
def test_a_function_that_is_a_formula_of_several_lines_is_told_where_it_is_called(lines, calls, beside, known):
    sites = (*SITES, CallSite("train.py", 20, "main", "y = act(x)"), CallSite("train.py", 21, "main", "z = act(y)"))
    twice = [*formula(0), op("aten::sum", 66, 5, dims=[LARGE], types=["float"]), *formula(82)]
    begins, lengths = (0, 80), (65, 75)
    marks = [
        event
        for line, call, begin, length in zip(lines, calls, begins, lengths, strict=True)
        for event in (mark(len(SITES) + call, begin, length), mark(line, begin, length))
    ]
    later = steps_of(lambda at: [{**event, "ts": event["ts"] + at} for event in [*twice, *beside]], 200)
    events = [step(9, 0, 200), *marks, *twice, *beside, *({**event, "ts": event["ts"] + 200} for event in later)]
    (found,) = find(facts_of(events, callsites=sites))
    assert [place.line for place in found.places.all()] == known


@pytest.mark.parametrize(("until", "reported"), [(200, 1), (100, 0)])
def test_half_of_the_steps_are_the_least(until, reported):
    facts = facts_of(steps_of(lambda at: formula(at + 10) if at < until else []))
    assert len(find(facts)) == reported


def test_without_shapes_it_cannot_look():
    facts = facts_of(steps_of(lambda at: [op("aten::mul", at, 20)]))
    assert Need.SHAPES in missing_needs(facts, unfused_pointwise.needs)


def test_kernels_that_the_compiler_fused_are_no_chain_to_fuse():
    def part(at: float) -> list[Json]:
        fused = [relu(at + 10 + 22 * i, name=f"triton_poi_fused_add_mul_tanh_{i}") for i in range(3)]
        return [op("Torch-Compiled Region: 0/0", at + 5, 80), *fused]

    assert find(facts_of(steps_of(part))) == []


def test_what_a_compiled_region_left_unfused_is_a_chain():
    facts = facts_of(steps_of(lambda at: [op("Torch-Compiled Region: 0/0", at + 5, 80), *formula(at + 10)]))
    assert len(find(facts)) == 1
