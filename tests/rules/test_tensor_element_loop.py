"""Loops over the elements of a tensor, and loops that have to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from profkit.core.marks import UNMARKED
from profkit.findings.values import Kind
from profkit.patterns.program import COPIES_BACK
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.tensor_element_loop import tensor_element_loop
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
LENGTH = 400
"""Of a step, in microseconds."""


def find(facts) -> list[Suspicion]:
    return list(tensor_element_loop.check(facts))


def tensor_op(name: str, at: float, duration: float, *shapes: list[int], **more: Any) -> Json:
    return op(name, at, duration, dims=list(shapes), types=["float"] * len(shapes), **more)


def select(at: float, size: int = 1000) -> Json:
    return op("aten::select", at, 1, dims=[[size], [], []], types=["float", "Scalar", "Scalar"])


def summing(at: float, rounds: int = 64, size: list[int] | None = None) -> list[Json]:
    """`total = total + x[i]`: 1 µs to take the element, 1 µs to add it, 1 µs of Python; 3 µs a round."""
    shape = size or []
    return [
        event
        for i in range(rounds)
        for event in (select(at + 3 * i), tensor_op("aten::add", at + 3 * i + 1.5, 1, shape, shape))
    ]


def steps_of(part: Callable[[float], list[Json]], length: float = LENGTH, count: int = 4) -> list[Json]:
    return [event for i in range(count) for event in (step(i, length * i, length), *part(length * i))]


def test_the_whole_loop_takes_the_time_of_one_round():
    facts = facts_of(steps_of(lambda at: summing(at + 10)))
    (found,) = find(facts)
    assert found.count == 64
    assert found.evidence == {"accesses_per_step": 64, "operators_per_step": 128}
    lasted = 63 * 3 + 2.5
    assert predict_saving(facts, found.edit).fraction == pytest.approx(lasted * (1 - 1 / 64) / LENGTH, abs=1e-3)


@pytest.mark.parametrize(("rounds", "reported"), [(64, 1), (63, 0)])
def test_sixty_four_elements_are_the_least_in_a_step(rounds, reported):
    assert len(find(facts_of(steps_of(lambda at: summing(at + 10, rounds))))) == reported


@pytest.mark.parametrize(("rounds", "reported"), [(32, 1), (31, 0)])
def test_many_accesses_in_a_few_rounds_are_a_loop_over_larger_things(rounds, reported):
    """Boxes of each image of a batch: a dozen images, each with several columns taken out of small tensors."""
    takes = ("aten::select", "aten::slice", "aten::narrow")

    def part(at: float) -> list[Json]:
        return [tensor_op(name, at + 3 * (3 * i + k), 1, [1000]) for i in range(rounds) for k, name in enumerate(takes)]

    assert [found.count for found in find(facts_of(steps_of(part)))] == [96] * reported


def test_iterating_over_a_tensor_takes_all_its_elements_at_once():
    """`for v in x` is one `unbind`; what follows must go round as often, or it is not the loop over these."""

    def part(rounds: int) -> Callable[[float], list[Json]]:
        return lambda at: [
            tensor_op("aten::unbind", at, 5, [100]),
            *(tensor_op("aten::add", at + 10 + 3 * i, 1, [], []) for i in range(rounds)),
        ]

    assert [found.count for found in find(facts_of(steps_of(part(100))))] == [100]
    assert find(facts_of(steps_of(part(20)))) == []


@pytest.mark.parametrize(
    ("kind", "read", "advice"),
    [("long int", "item", "ix.tolist()"), ("float", "item", "Vectorise"), ("long int", "add", "Vectorise")],
)
def test_a_loop_that_reads_whole_numbers_out_of_a_tensor_is_told_to_read_them_at_once(kind, read, advice):
    def part(at: float) -> list[Json]:
        return [
            op("aten::unbind", at, 5, dims=[[100]], types=[kind]),
            *(
                tensor_op(f"aten::{name}", at + 10 + 3 * i + k, 1, [], [])
                for i in range(100)
                for k, name in enumerate((read, "mul"))
            ),
        ]

    (found,) = find(facts_of(steps_of(part)))
    assert advice in found.fix


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ((), "x.tolist()"),
        (("aten::mul",), "Vectorise"),
        (("aten::slice",), "torch.arange(size)"),
        (("aten::slice", "aten::mul"), "Vectorise"),
        (("aten::embedding",), "nn.Embedding(sum(sizes), width)"),
    ],
)
def test_a_loop_that_only_reads_numbers_is_told_to_fetch_them_in_one_call(more, advice):
    """`scores.append(x[i, j].item())`: no arithmetic is left to be done at once."""

    def part(at: float) -> list[Json]:
        names = ("aten::select", "aten::select", *more, "aten::item")
        return [tensor_op(name, at + 5 * i + k, 0.8, [8]) for i in range(64) for k, name in enumerate(names)]

    (found,) = find(facts_of(steps_of(part)))
    assert advice in found.fix


@pytest.mark.parametrize(("elements", "reported"), [(4096, 1), (4097, 0)])
def test_rows_of_up_to_4096_elements_are_small(elements, reported):
    assert len(find(facts_of(steps_of(lambda at: summing(at + 10, size=[elements]))))) == reported


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            lambda at: [
                select(at),
                tensor_op("aten::eq", at + 1, 1, [], []),
                tensor_op("aten::is_nonzero", at + 2, 1, []),
            ],
            id="if x[i] == y",
        ),
        pytest.param(lambda at: [select(at), tensor_op("aten::copy_", at + 1, 1, [], [])], id="y[i] = value"),
        pytest.param(lambda at: [select(at), tensor_op("aten::item", at + 1, 1, [])], id="x[i].item()"),
        pytest.param(
            lambda at: [tensor_op("aten::index", at, 1, [1000], []), tensor_op("aten::mul", at + 1, 1, [], [])],
            id="x[i] with i a tensor",
        ),
        pytest.param(
            lambda at: [select(at), select(at + 1), tensor_op("aten::dot", at + 2, 1, [64], [64])], id="x[i] @ y[j]"
        ),
    ],
)
def test_other_bodies_are_found(body):
    assert len(find(facts_of(steps_of(lambda at: [event for i in range(64) for event in body(at + 4 * i)])))) == 1


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(tensor_op("aten::linear", 0, 1, [16, 8], [16, 8]), id="time steps of a recurrent network"),
        pytest.param(op("aten::linear", 0, 1), id="an agent's policy, called for steps of no recorded length"),
        pytest.param(tensor_op("aten::gru_cell", 0, 1, [16, 8], [16, 16]), id="a cell"),
        pytest.param(tensor_op("aten::conv2d", 0, 1, [1, 3, 8, 8], [4, 3, 3, 3]), id="samples through a model"),
        pytest.param(tensor_op("aten::add", 0, 1, [64, 128], [64, 128]), id="work on large rows"),
    ],
)
def test_a_loop_with_real_work_in_it_is_silent(between):
    def part(at: float) -> list[Json]:
        return [event for i in range(100) for event in (select(at + 3 * i), {**between, "ts": at + 3 * i + 1.5})]

    assert find(facts_of(steps_of(part))) == []


def test_taking_many_rows_at_once_is_the_vectorised_way():
    def part(at: float) -> list[Json]:
        return [tensor_op("aten::index", at + 3 * i, 1, [1000], [100]) for i in range(100)]

    assert find(facts_of(steps_of(part))) == []


def test_operators_on_numbers_alone_are_silent():
    """Logging the norms of many parameters, say: nothing is taken out of a tensor element by element."""
    assert find(facts_of(steps_of(lambda at: [tensor_op("aten::item", at + 2 * i, 1, []) for i in range(100)]))) == []


@pytest.mark.parametrize(("rounds", "reported"), [(16, 1), (15, 0)])
def test_runs_of_fewer_than_sixteen_between_other_work_do_not_add_up(rounds, reported):
    def part(at: float) -> list[Json]:
        layers = [
            [*summing(at + 60 * i, rounds), tensor_op("aten::linear", at + 60 * i + 50, 5, [64, 64], [64, 64])]
            for i in range(6)
        ]
        return [event for events in layers for event in events]

    assert [found.count for found in find(facts_of(steps_of(part)))] == [96] * reported


def test_each_run_of_a_loop_shrinks_by_its_own_rounds():
    """Two runs, of 40 and of 80 rounds, around a product."""

    def part(at: float) -> list[Json]:
        product = tensor_op("aten::linear", at + 130, 5, [64, 64], [64, 64])
        return [*summing(at, 40), product, *summing(at + 140, 80)]

    facts = facts_of(steps_of(part))
    kept = (39 * 3 + 2.5) * 39 / 40 + (79 * 3 + 2.5) * 79 / 80
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(kept / LENGTH, abs=1e-3)


@pytest.mark.parametrize("around", ["Optimizer.step#SGD.step", "enumerate(DataLoader)#_BaseDataLoaderIter.__next__"])
def test_an_optimizer_and_a_loader_are_silent(around):
    assert find(facts_of(steps_of(lambda at: [annotation(around, at, 300), *summing(at + 10)]))) == []


@pytest.mark.parametrize(("pause", "of_the_loop"), [(150, 1), (250, 0)])
def test_a_long_pause_inside_the_loop_stays(pause, of_the_loop):
    """Half way through, Python does something else: what takes longer than 200 µs is not the loop's own."""
    facts = facts_of(steps_of(lambda at: [*summing(at, 32), *summing(at + 96 + pause, 32)], 800))
    lasted = 64 * 3 - 1 + of_the_loop * pause
    saved = predict_saving(facts, find(facts)[0].edit).fraction
    assert saved == pytest.approx(lasted * (1 - 1 / 64) / 800, abs=2e-3)


def test_the_backward_nodes_take_the_time_of_one_round_too():
    def part(at: float) -> list[Json]:
        loop = [
            {**event, "args": {**event["args"], "Sequence number": int(at) + i}} for i, event in enumerate(summing(at))
        ]
        name = "autograd::engine::evaluate_function: SelectBackward0"
        nodes = [op(name, at + 200 + 4 * i, 4, sequence=int(at) + 2 * i) for i in range(50)]
        return [*loop, *nodes]

    facts = facts_of(steps_of(part, 1000))
    lasted = 63 * 3 + 2.5 + 200
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(lasted * 63 / 64 / 1000, abs=2e-3)


def test_gradients_of_gradients_that_the_loop_takes_shrink_with_it():
    """A Jacobian row by row, in a round of which a node runs: the later backward pass takes 100 µs for it, and as much
    for what is not the loop's."""

    def part(at: float) -> list[Json]:
        engine, number = "autograd::engine::evaluate_function: {}", int(at) + 7
        inside = [
            op(engine.format("TanhBackward0"), at + 17.6, 0.3),
            op("aten::tanh_backward", at + 17.7, 0.1, sequence=number),
        ]
        outside = op("aten::exp", at + 250, 1, dims=[[100_000]], types=["float"], sequence=number + 1)
        later = [
            op(engine.format("TanhBackwardBackward0"), at + 300, 100, sequence=number),
            op(engine.format("ExpBackward0"), at + 400, 100, sequence=number + 1),
        ]
        return [*summing(at), *inside, outside, *later]

    facts = facts_of(steps_of(part, 1000))
    lasted = 63 * 3 + 2.5 + 100
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(lasted * 63 / 64 / 1000, abs=2e-3)


def test_what_stands_before_and_after_the_loop_is_not_part_of_it():
    def part(at: float) -> list[Json]:
        around = [tensor_op("aten::zeros", at, 20), tensor_op("aten::mean", at + 250, 50, [100])]
        return [*around, *summing(at + 30)]

    facts = facts_of(steps_of(part))
    lasted = 63 * 3 + 2.5
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(lasted * 63 / 64 / LENGTH, abs=2e-3)


def test_a_body_of_several_lines_is_one_finding_at_the_costliest():
    sites = tuple(CallSite("loop.py", line, "distance") for line in (5, 6))
    body = [(0, select(0)), (1, tensor_op("aten::sub", 0, 2, [], []))]
    rounds = [(site, {**event, "ts": 5 * i + 2 * site}) for i in range(64) for site, event in body]
    marks = [mark(site, event["ts"] - 0.2, event["dur"] + 0.4) for site, event in rounds]
    first = [step(9, 0, LENGTH), *marks, *(event for _, event in rounds)]
    later = steps_of(lambda at: [{**event, "ts": event["ts"] + at} for _, event in rounds])
    facts = facts_of([*first, *({**event, "ts": event["ts"] + LENGTH} for event in later)], callsites=sites)
    (found,) = find(facts)
    assert (found.location.line, [place.line for place in found.also]) == (6, [5])


def mapped(at: float, called: Callable[[float], list[Json]]) -> list[Json]:
    """A line takes the 64 elements of a tensor and calls a function for each, at a second line."""
    calls = [[mark(1, at + 20 * n + 20, 18), *called(at + 20 * n + 20)] for n in range(64)]
    taking = tensor_op("aten::unbind", at + 5, 10, [64, 1])
    return [mark(0, at + 1, 1400), taking, *(event for call in calls for event in call)]


def test_a_function_that_the_loop_calls_for_each_element_is_not_the_place():
    """The loop's line takes the element, and hands it to a function that costs most."""
    sites = (CallSite("heat.py", 34, "encode"), CallSite("heat.py", 18, "blob"))

    def body(at: float) -> list[Json]:
        parts = [
            [
                mark(0, at + 30 * n, 29),
                select(at + 30 * n + 1),
                mark(1, at + 30 * n + 8, 20),
                tensor_op("aten::exp", at + 30 * n + 9, 15, [1]),
            ]
            for n in range(64)
        ]
        return [event for part in parts for event in part]

    (found,) = find(facts_of(steps_of(body, 2000), callsites=sites))
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (34, [18])


def test_a_function_that_gets_elements_taken_all_at_once_is_not_the_place_either():
    """`map(blob, rows)` takes them apart before the first call."""
    sites = (CallSite("heat.py", 34, "encode"), CallSite("heat.py", 18, "blob"))

    def called(at: float) -> list[Json]:
        return [tensor_op("aten::exp", at + 1, 15, [1])]

    (found,) = find(facts_of(steps_of(lambda at: mapped(at, called), 2000), callsites=sites))
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (34, [18])


def test_where_the_loop_goes_over_a_tensor_its_line_is_the_place_though_others_take_elements_too():
    """`[overlap(box) for box in boxes]`, of a function that reads the box's corners."""
    sites = (CallSite("match.py", 34, "quality"), CallSite("match.py", 18, "overlap"))

    def called(at: float) -> list[Json]:
        return [select(at + 1), select(at + 7), tensor_op("aten::exp", at + 13, 4, [1])]

    (found,) = find(facts_of(steps_of(lambda at: mapped(at, called), 2000), callsites=sites))
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (34, [18])


def test_a_loop_that_the_located_step_does_not_run_is_silent():
    """Elements that are taken between the steps, as requests come in, are no loop of the program's."""
    facts = facts_of(
        [
            step(9, 0, 900),
            mark(0, 5, 800),
            select(10),
            select(20),
            *(event for i in range(1, 5) for event in (step(i, 2000 * i, 2000), *summing(2000 * i))),
        ],
        callsites=(CallSite("serve.py", 6, "answer"),),
    )
    assert find(facts) == []


def test_a_loop_in_fewer_than_half_of_the_steps_is_silent():
    assert find(facts_of(steps_of(lambda at: [] if at else summing(at)))) == []


def test_without_shapes_it_cannot_look():
    facts = facts_of(steps_of(lambda at: [op("aten::select", at, 1)]))
    assert Need.SHAPES in missing_needs(facts, tensor_element_loop.needs)


@pytest.mark.parametrize(
    ("line", "size", "reported"),
    [
        pytest.param("last = rewards[t] + decay * last", [8], 0, id="rows that need the row before"),
        pytest.param("last = last + rewards[t]", [8], 1, id="rows that are added up"),
        pytest.param("last = rewards[t] + decay * last", [], 1, id="single numbers, which Python has itself"),
    ],
)
def test_a_recurrence_over_rows_is_silent(line: str, size: list[int], reported: int):
    sites = (CallSite("agent.py", 4, "returns", "for t in range(n):"), CallSite("agent.py", 5, "returns", line))
    marks = [mark(n, 10 + 3 * i + 0.2 * n, 0.1 if n == 0 else 2.7) for i in range(64) for n in (0, 1)]
    taking = steps_of(lambda at: summing(at + 10.3, size=size))
    assert len(find(facts_of([*taking, *marks], callsites=sites))) == reported


def test_an_element_that_another_line_takes_before_the_loop_is_none_of_it():
    """`for x in values: total = total + x`, behind `first = weights[0]` of another line."""
    sites = (
        CallSite("a.py", 3, "f", "first = weights[0]"),
        CallSite("a.py", 6, "f", "for x in values:"),
        CallSite("a.py", 7, "f", "total = total + x"),
    )

    def loop(at: float) -> list[Json]:
        taking = [select(at), op("aten::unbind", at + 2, 1, dims=[[64], []], types=["float", "Scalar"])]
        return [*taking, *(tensor_op("aten::add", at + 4 + 2 * i, 1, [], []) for i in range(64))]

    marks = [mark(0, 9.5, 2), mark(1, 11.8, 1.5), *(mark(2, 13.8 + 2 * i, 1.5) for i in range(64))]
    (found,) = find(facts_of([*steps_of(lambda at: loop(at + 10)), *marks], callsites=sites))
    assert found.evidence["accesses_per_step"] == 64
    assert found.location is not None
    assert sorted([found.location.line, *(place.line for place in found.also)]) == [6, 7]


@pytest.mark.parametrize(
    ("copies", "nodes", "reported"),
    [(64, 0, 0), (0, 0, 1), (64, 1, 1)],
    ids=["one pass", "no gradient is copied back", "a pass for each gradient"],
)
def test_the_reducer_s_own_loop_over_the_parameters_is_not_the_program_s(copies, nodes, reported):
    """DistributedDataParallel that looks for unused parameters reads for each whether it was used somewhere, at the end
    of the backward pass. A program that reads numbers between backward passes does so itself."""

    def part(at: float) -> list[Json]:
        events = [op("autograd::engine::evaluate_function: MulBackward0", at + 1, 2, tid=2)]
        for i in range(64):
            events += [select(at + 10 + 5 * i), tensor_op("aten::item", at + 11 + 5 * i, 1, [])]
            events += [op(COPIES_BACK, at + 12 + 5 * i, 1)] if i < copies else []
            events += [op("autograd::engine::evaluate_function: MulBackward0", at + 13.5 + 5 * i, 0.5, tid=2)] * nodes
        return events

    assert len(find(facts_of(steps_of(part)))) == reported


FORMATTED = CallSite("model.py", 21, "forward", 'log.debug(f"layer {i} gives {y}")')


def formatting(at: float, picks: bool = True) -> list[Json]:
    """What `Tensor.__format__` calls: 100 µs until the last number is read, and 50 of Python before the next line."""
    first = [tensor_op("aten::masked_select", at, 2, [1000], [1000])] if picks else []
    numbers = [
        event
        for i in range(64)
        for event in (select(at + 2 + 1.5 * i), tensor_op("aten::item", at + 2 + 1.5 * i + 1, 0.5, []))
    ]
    return [*first, *numbers, tensor_op("aten::mm", at + 150, 50, [8, 8], [8, 8])]


def formatted(site: CallSite, picks: bool = True) -> list[Suspicion]:
    lines = (site, CallSite("model.py", 22, "forward", "return self.head(y)"))
    events = [mark(0, 5, 144), mark(1, 150, 240)]
    for i in range(4):
        events += [step(i, LENGTH * i, LENGTH), *formatting(LENGTH * i + 10, picks)]
    return find(facts_of(events, callsites=lines))


def test_text_made_of_a_tensor_goes_up_to_the_next_line():
    (found,) = formatted(FORMATTED)
    assert found.message.startswith("Tensors are made into text here, number by number: 129 operators a step, 150 µs.")
    assert found.location is not None
    assert found.location.line == 21
    assert found.edit is not None
    assert (found.edit.span_end_ns - found.edit.span_start_ns).tolist() == [150_000] * 3
    assert found.edit.span_kept_ns.tolist() == [0] * 3


@pytest.mark.parametrize(
    ("site", "picks"), [(CallSite("model.py", 21, "forward", "total = sum(y)"), True), (FORMATTED, False)]
)
def test_a_loop_that_makes_no_text_is_a_loop(site, picks):
    """Its line makes no text, or its operators are not those that pick what is shown."""
    (found,) = formatted(site, picks)
    assert found.message.startswith("Python loops over 64 elements")


def taking(at: float, place: int, dimension: int = 0) -> Json:
    return op(
        "aten::select",
        at,
        1,
        dims=[[64], [], []],
        types=["float", "Scalar", "Scalar"],
        concrete=["", str(dimension), str(place)],
    )


def located(
    sites: tuple[CallSite, ...],
    place_of: Callable[[int], int],
    nested: bool = False,
    more: Sequence[Json] = (),
    marks_of: int = 64,
) -> Any:
    """Four steps of 64 rounds, each with an element and a sum; in the first so many rounds have a mark of site 0, that
    of the last until the end."""
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, LENGTH * i, LENGTH))
        for k in range(64):
            at = LENGTH * i + 10 + 3 * k
            if i == 0 and k < marks_of:
                stays = nested or (marks_of < 64 and k == marks_of - 1)
                events.append(mark(0, at - 0.2, LENGTH - 20 - 3 * k if stays else 2.9))
            events += [taking(at, place_of(k)), tensor_op("aten::add", at + 1.5, 1, [], [])]
    return facts_of([*events, *more], callsites=sites)


@pytest.mark.parametrize(
    ("line", "places", "reported"),
    [
        pytest.param("total = total + x[i]", 64, 1, id="a loop"),
        pytest.param("total = total + x[i]", 2, 1, id="a loop over two rows"),
        pytest.param("return x[0] * x[1]", 2, 0, id="a function of two elements"),
        pytest.param("return x[0, 1]", 2, 0, id="a function of one element of a matrix"),
        pytest.param("y = spline(x)", 7, 0, id="a library's formula"),
        pytest.param("y = spline(x)", 8, 1, id="a library's loop"),
    ],
)
def test_a_function_that_takes_the_same_elements_each_time_is_no_loop(line, places, reported):
    facts = located((CallSite("a.py", 5, "f", line),), lambda k: k % places)
    assert len(find(facts)) == reported


@pytest.mark.parametrize(("nested", "reported"), [(False, 1), (True, 0)])
def test_a_function_that_calls_itself_is_no_loop(nested, reported):
    facts = located((CallSite("a.py", 5, "f", "return x[n] + f(n - 1)"),), lambda k: k, nested)
    assert len(find(facts)) == reported


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("y = torch.stack([x[i] + 1 for i in ix])", 1),
        ("y = list(map(lambda i: x[i] + 1, ix))", 1),
        ("y = apply(rounds, x)", 0),
    ],
)
def test_a_comprehension_lies_below_its_own_line_and_does_not_call_itself(line, reported):
    facts = located((CallSite("a.py", 5, "f", line),), lambda k: k, more=[mark(0, 5, LENGTH - 10)])
    assert len(find(facts)) == reported


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("y = metric(x)", Kind.OPPORTUNITY),
        ("y = sum(x)", None),
        ("y = torch.stack([f(v) for v in x])", None),
        ("total = total + x[i]", None),
    ],
)
def test_a_loop_inside_a_library_is_not_the_programs_fault(line, kind):
    (found,) = find(located((CallSite("a.py", 5, "f", line),), lambda k: k, marks_of=1))
    assert found.kind is kind
    assert ("inside the library" in found.fix) == (kind is not None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("parts.append(cut(x[i, :, a[i, 0] : a[i, 1], 0]))", None),
        ("parts.append(cut(x[i]))", Kind.OPPORTUNITY),
    ],
)
def test_a_line_whose_text_names_many_elements_runs_in_each_round(text, kind):
    """Eight elements a round: the first line names as many, the second one."""
    (found,) = find(located((CallSite("a.py", 5, "f", text),), lambda k: k, marks_of=8))
    assert found.kind is kind


@pytest.mark.parametrize(("marks_of", "kind"), [(64, None), (10, None), (9, Kind.OPPORTUNITY)])
def test_a_line_that_runs_in_each_round_is_no_library_whatever_it_calls(marks_of, kind):
    """`x[i].item()` names neither `select` nor the operator that reads the number."""
    line = CallSite("a.py", 5, "f", "scores.append(metric(x))")
    (found,) = find(located((line,), lambda k: k, marks_of=marks_of))
    assert found.kind is kind


def test_a_function_of_the_program_that_ran_too_many_lines_is_no_library():
    """Its later rounds are only known at the line that calls it, as those of a library's function are."""
    facts = located((CallSite("a.py", 5, "f", "y = metric(x)"),), lambda k: k, marks_of=1)
    unmarked = annotation(UNMARKED, 11, 0.1)
    (found,) = find(located((CallSite("a.py", 5, "f", "y = metric(x)"),), lambda k: k, more=[unmarked], marks_of=1))
    assert found.kind is None
    assert find(facts)[0].kind is Kind.OPPORTUNITY


def rows(
    lines: tuple[str, ...], calls: int = 8, per_call: int = 4, between: str = "aten::mm", name: str = "aten::mv"
) -> Any:
    """Loops of a few rounds, each of which takes a row and multiplies it: 4 µs of 6; other work comes between them."""
    sites = (*(CallSite("a.py", 5 + i, "f", line) for i, line in enumerate(lines)), CallSite("a.py", 20, "g", "f(x)"))
    events: list[Json] = []
    for i in range(4):
        events.append(step(i, LENGTH * i, LENGTH))
        for call in range(calls):
            begin = LENGTH * i + 10 + call * 45
            if i == 0:
                events.append(mark(len(lines), begin - 1, 6 * per_call + 1.5))
            for k in range(per_call):
                at = begin + 6 * k
                if i == 0:
                    events += [mark(n, at - 0.5 + 0.1 * n, 0.05) for n in range(len(lines) - 1)]
                    events.append(mark(len(lines) - 1, at - 0.1, 5.5))
                events += [taking(at, k), tensor_op(name, at + 2, 2, [16, 16], [16])]
            events.append(tensor_op(between, begin + 6 * per_call + 5, 8, [512, 512], [512, 512]))
    return facts_of(events, callsites=sites)


HEAD, BODY = "for i in range(len(x)):", "out[i] = w[i] @ x[i]"


def test_a_loop_over_few_rows_that_runs_often_keeps_one_round_of_each_run():
    facts = rows((HEAD, BODY))
    (found,) = find(facts)
    assert found.evidence == {"rounds_per_step": 32, "operators_per_step": 64}
    assert found.location is not None
    assert found.location.line == 6
    lasted, kept = 3 * 6 + 4, 1 + 2
    assert predict_saving(facts, found.edit).fraction == pytest.approx(8 * (lasted - kept) / LENGTH, abs=1e-3)


@pytest.mark.parametrize(
    ("lines", "calls", "per_call", "name"),
    [
        pytest.param((HEAD, BODY), 7, 4, "aten::mv", id="28 rounds"),
        pytest.param((HEAD, BODY), 8, 3, "aten::mv", id="three rows"),
        pytest.param((HEAD, "h = w[i] @ h + x[i]"), 8, 4, "aten::mv", id="a recurrence"),
        pytest.param((HEAD, "out[i] = w[i] @ out[i - 1]"), 8, 4, "aten::mv", id="the row before"),
        pytest.param((HEAD, BODY), 8, 4, "aten::bernoulli", id="random"),
    ],
)
def test_other_loops_over_few_rows_are_silent(lines, calls, per_call, name):
    assert find(rows(lines, calls, per_call, name=name)) == []


def iterating(source: str) -> Any:
    """A line takes a tensor of a hundred elements apart, and adds them up."""
    site = CallSite("metrics.py", 7, "worst", source)

    def part(at: float) -> list[Json]:
        adds = [tensor_op("aten::add", at + 20 + 2 * i, 1, [], []) for i in range(99)]
        return [tensor_op("aten::unbind", at + 11, 5, [100]), *adds]

    events = steps_of(part)
    return facts_of([*events, mark(0, LENGTH * 3 + 10, 300)], callsites=(site,))


@pytest.mark.parametrize(
    ("source", "who", "instead"),
    [
        ("total = sum(x.flatten())", "Python's `sum` loops over", "`x.sum(0)` for `sum(x)`"),
        ("worst = max(errors)", "Python's `max` loops over", "`x.max()` for `max(x)`"),
        ("total = sum(v for v in x)", "Python loops over", "Vectorise"),
        ("for v in sorted(x):", "Python loops over", "Vectorise"),
        ("low, high = min(x), max(x)", "Python loops over", "Vectorise"),
        ("worst = max(a, b)", "Python loops over", "Vectorise"),
        ("worst = x.max()", "Python loops over", "Vectorise"),
    ],
)
def test_a_function_of_python_that_walks_through_a_tensor_is_named(source: str, who: str, instead: str):
    (found,) = find(iterating(source))
    assert found.message.startswith(who)
    assert instead in found.fix
