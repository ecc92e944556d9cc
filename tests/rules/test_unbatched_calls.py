"""Calls on few rows that could be one: reported where none needs another's result, or few levels of them do."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.findings.values import Kind, Severity
from profkit.patterns.loops import independent_rounds
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.unbatched_calls import unbatched_calls
from profkit.run.directory import CallSite, DataFlow, Recomputation, Run
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, memory, op, step

Json = dict[str, Any]
HEAD = CallSite("tags.py", 6, "Tagger.forward", "for word in words:")
CALL = CallSite("tags.py", 7, "Tagger.forward", "parts.append(self.encoder(word))")
FED_BACK = CallSite("tags.py", 7, "Tagger.forward", "state = self.cell(state)")
LINEAR = {"dims": [[4, 8], [8, 8], [8]], "types": ["float"] * 3}
ONE_OPERATOR = {"operators_per_call": 1, "largest_result_at_once_bytes": 0}
APART = tuple((-10 - turn, -1, -2) for turn in range(8))
IN_TURN = tuple((turn - 1 if turn else -10, -1, -2) for turn in range(8))


def find(facts) -> list[Suspicion]:
    return list(unbatched_calls.check(facts))


def recording(
    takes: tuple[tuple[int, ...], ...] | None = APART,
    *,
    call: CallSite = CALL,
    calls: int = 8,
    shapes: list[Any] | None = None,
    within: tuple[str, ...] = (),
    name: str = "aten::linear",
    **flow: Any,
) -> Any:
    """A located step and two measured ones of 200 µs: calls of 6 µs with 4 µs of Python after each. ``within`` are
    further operators of 1 µs in each call."""
    events: list[Json] = []
    for i in range(3):
        at = 200.0 * i
        events.append(step(i, at, 200))
        for turn in range(calls):
            start, is_marked = at + 10 + 10 * turn, i == 0
            given = shapes[turn] if shapes else LINEAR["dims"]
            if is_marked:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 8)]
                events.append(annotation(f"{CALL_MARK}{turn}", start - 0.5, 7.2))
            events.append(op(name, start, 6 - len(within), dims=given, types=LINEAR["types"]))
            for k, inner in enumerate(within):
                events.append(op(inner, start + 6 - len(within) + k, 1, concrete=["", "", "", "", "", "True"]))
    run = None if takes is None else Run(flow=DataFlow(takes, **flow))
    return facts_of(events, callsites=(HEAD, call), run=run)


def test_calls_that_take_nothing_of_each_other_are_reported_on_their_line():
    (found,) = find(recording())
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (7, [6])
    assert found.message == "8 equal calls a step, each on 4 rows, could be one: none needs another's result."
    assert found.evidence == {"calls": 8, "rows_per_call": 4, "calls_left": 1, **ONE_OPERATOR}
    assert (found.kind, found.confidence) == (None, 0.85)


def test_the_saving_is_the_price_of_all_calls_but_one():
    """From the first operator to the last 76 µs, of which an eighth stays: no operator takes longer than a call."""
    facts = recording()
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(76 * 7 / 8 / 200, abs=2e-3)


@pytest.mark.parametrize(("function", "share"), [("Tagger.forward", 0.475), ("Tagger.mask", 0.175)])
def test_other_lines_of_the_function_are_part_of_the_price(function: str, share: float):
    """Each round compares 4 µs, too: from the first operator to the last 150 µs, which become an eighth; or another
    function does, and each product alone becomes an eighth."""
    compare, events = CallSite("tags.py", 12, function, "masks.append(word != 0)"), list[Json]()
    for i in range(3):
        events.append(step(i, 300.0 * i, 300))
        for turn in range(8):
            start = 300.0 * i + 10 + 20 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 8), mark(2, start + 8, 8)]
                events += [annotation(f"{CALL_MARK}{2 * turn + k}", start - 0.5 + 9 * k, 7) for k in range(2)]
            events += [op("aten::linear", start, 6, **LINEAR), op("aten::ne", start + 10, 4, dims=[[4, 8]])]
    takes = tuple(taken for turn in range(8) for taken in ((-10 - turn, -1, -2), (-10 - turn,)))
    facts = facts_of(events, callsites=(HEAD, CALL, compare), run=Run(flow=DataFlow(takes)))
    found = find(facts)[0]
    assert found.count == 8
    assert predict_saving(facts, found.edit).fraction == pytest.approx(share, abs=0.04)


def test_gradients_of_each_call_are_computed_at_once():
    """`torch.autograd.grad` after each call: its results are added up, and no call needs them."""
    facts = recording(within=("autograd::engine::evaluate_function: MulBackward0",))
    assert "torch.func.grad" in find(facts)[0].fix
    assert "torch.func.grad" not in find(recording(within=("aten::relu",)))[0].fix


def test_a_recurrence_is_silent():
    assert find(recording(IN_TURN, call=FED_BACK)) == []


def test_the_data_flow_counts_more_than_the_text():
    """The line looks like a loop over words, but each call takes what the one before wrote."""
    assert find(recording(IN_TURN)) == []


def test_two_chains_of_four_are_silent_and_four_of_two_are_reported_by_level():
    of_four = tuple((turn - 2 if turn > 1 else -10 - turn, -1, -2) for turn in range(8))
    of_two = tuple((turn - 4 if turn > 3 else -10 - turn, -1, -2) for turn in range(8))
    assert find(recording(of_four)) == []
    (found,) = find(recording(of_two))
    assert found.evidence["calls_left"] == 2
    assert (
        found.message == "8 equal calls a step, each on 4 rows, could be 2: no more of them need to follow one another."
    )


@pytest.mark.parametrize(
    ("behind", "left"), [(16, 1), (4, 4)], ids=["each begins anew", "each needs the fourth before"]
)
def test_behind_the_calls_that_were_followed_chains_grow_as_before(behind: int, left: int):
    followed = tuple((turn - behind if turn >= behind else -10 - turn, -1, -2) for turn in range(8))
    (found,) = find(recording(followed, calls=16))
    assert (found.evidence["calls"], found.evidence["calls_left"]) == (16, left)


def test_calls_with_weights_of_their_own_are_another_fault():
    assert find(recording(tuple((-1, -10 - turn, -30 - turn) for turn in range(8)))) == []


def test_products_of_what_a_call_has_made_need_no_weights():
    """Attention within each call: the product of its own queries and keys, after a layer that all calls share."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 200.0 * i, 200))
        for turn in range(8):
            start = 200.0 * i + 10 + 20 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 18)]
                events += [annotation(f"{CALL_MARK}{2 * turn + k}", start - 0.5 + 8 * k, 7.2) for k in range(2)]
            events += [op("aten::linear", start, 6, **LINEAR), op("aten::matmul", start + 8, 6, dims=[[4, 8], [8, 4]])]
    own = tuple(taken for turn in range(8) for taken in ((-10 - turn, -1, -2), (2 * turn, 2 * turn)))
    others = tuple(taken for turn in range(8) for taken in ((-10 - turn, -1, -2), (2 * turn, -40 - turn)))
    assert len(find(facts_of(events, callsites=(HEAD, CALL), run=Run(flow=DataFlow(own))))) == 1
    assert find(facts_of(events, callsites=(HEAD, CALL), run=Run(flow=DataFlow(others)))) == []


@pytest.mark.parametrize("are_inside", [True, False])
def test_what_other_lines_of_the_same_call_have_made_are_no_weights(are_inside: bool):
    """Heads of attention with weights of their own multiply what they made of them; or weights that were made before,
    as by an inner optimisation, are multiplied in a function."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 400.0 * i, 400))
        for turn in range(8):
            start = 400.0 * i + 200 + 20 * turn
            first = start if are_inside else 400.0 * i + 10 + 10 * turn
            of_first, of_product = (2 * turn, 2 * turn + 1) if are_inside else (turn, 8 + turn)
            if i == 0:
                events += [mark(0, start - 1, 18), mark(2, first - 0.8, 7), mark(1, start + 7.2, 8)]
                events += [
                    annotation(f"{CALL_MARK}{of_first}", first - 0.5, 6.6),
                    annotation(f"{CALL_MARK}{of_product}", start + 7.5, 7),
                ]
            events += [op("aten::linear", first, 6, **LINEAR), op("aten::matmul", start + 8, 6, dims=[[4, 8], [8, 4]])]
    makes = [(-10 - turn, -50 - turn, -80 - turn) for turn in range(8)]
    multiplies = [(-100 - turn, 2 * turn if are_inside else turn) for turn in range(8)]
    pairs = zip(makes, multiplies, strict=True)
    takes = tuple(one for pair in pairs for one in pair) if are_inside else (*makes, *multiplies)
    sites = (HEAD, CallSite("tags.py", 20, "Head.forward", "return q @ k"), CallSite("tags.py", 18, "make", "k = f(x)"))
    found = find(facts_of(events, callsites=sites, run=Run(flow=DataFlow(takes))))
    assert len(found) == (not are_inside)


@pytest.mark.parametrize(("name", "is_reported"), [("aten::div", False), ("aten::add", True)])
def test_what_divides_by_a_mean_of_earlier_results_cannot_come_before_them(name: str, is_reported: bool):
    """A hook makes it, after each call; a sum of the results ties nothing."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 200.0 * i, 200))
        for turn in range(8):
            start = 200.0 * i + 10 + 20 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 18)]
                events += [annotation(f"{CALL_MARK}{2 * turn + k}", start - 0.5 + 8 * k, 7.2) for k in range(2)]
            events += [op("aten::linear", start, 6, **LINEAR), op(name, start + 8, 6, dims=[[4, 8], [8]])]
    takes = tuple(
        taken for at in range(0, 24, 3) for taken in ((-10 - at, -1, -2), (at, at - 1 if at else -5), (at + 1,))
    )
    run = Run(flow=DataFlow(takes, unmarked=tuple(range(2, 24, 3))))
    assert bool(find(facts_of(events, callsites=(HEAD, CALL), run=run))) is is_reported


@pytest.mark.parametrize(("name", "has_weights"), [("aten::linear", True), ("aten::dot", False)])
def test_weights_that_the_step_has_made_are_stacked(name: str, has_weights: bool):
    """Between two calls an event-less one makes the weights of the next, as an inner optimisation does; or one of two
    vectors, neither of which is weights."""
    takes = tuple(taken for turn in range(8) for taken in ((-1,), (-10, 2 * turn, 2 * turn)))
    (found,) = find(recording(takes, name=name, unmarked=tuple(range(0, 16, 2))))
    assert found.evidence["calls_left"] == 1
    assert ("weights of its own" in found.fix) == has_weights


def ragged(*rows: int) -> list[Any]:
    return [[[one, 8], [8, 8], [8]] for one in rows]


def test_calls_that_differ_in_size_are_padded():
    facts = recording(shapes=ragged(*range(4, 12)))
    (found,) = find(facts)
    assert found.message == "8 calls a step, each on 4 to 11 rows, could be one: none needs another's result."
    assert "pad_sequence" in found.fix
    assert found.evidence["rows_per_call"] == 11
    assert predict_saving(facts, found.edit).fraction == pytest.approx(76 * 7 / 8 / 200, abs=2e-3)


@pytest.mark.parametrize(("last", "reported"), [(4, True), (3, False)])
def test_half_of_a_padded_batch_has_to_be_filled(last: int, reported: bool):
    assert bool(find(recording(shapes=ragged(4, 16, 16, 16, 2, 3, 3, last)))) is reported


def test_sizes_that_form_few_groups_need_no_padding():
    """Four calls of each of two sizes: eight become two."""
    (found,) = find(recording(shapes=ragged(*(4, 40) * 4)))
    assert found.evidence["calls_left"] == 2
    assert "pad_sequence" not in found.fix


def test_calls_of_other_sizes_that_need_each_other_are_silent():
    assert find(recording(IN_TURN, call=FED_BACK, shapes=ragged(*range(4, 12)))) == []


def test_rounds_without_products_are_not_padded():
    assert find(recording(shapes=[[[4 + turn, 8]] for turn in range(8)], name="aten::tanh")) == []


def test_a_table_for_each_call_is_data_and_no_weights():
    """Each call multiplies a table of its own, such as the edges of a graph, with what it has made before: the table
    comes first, so that the weights of a product would stand second."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 200.0 * i, 200))
        for turn in range(8):
            start, size = 200.0 * i + 10 + 20 * turn, 6 + turn
            if not i:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 18)]
                events += [annotation(f"{CALL_MARK}{2 * turn + k}", start - 0.5 + 8 * k, 7.2) for k in range(2)]
            events.append(op("aten::linear", start, 6, dims=[[size, 8], [8, 8], [8]], types=["float"] * 3))
            events.append(op("aten::matmul", start + 8, 6, dims=[[size, size], [size, 8]], types=["float"] * 2))
    takes = tuple(taken for at in range(0, 16, 2) for taken in ((-10 - at, -1, -2), (-40 - at, at)))
    (found,) = find(facts_of(events, callsites=(HEAD, CALL), run=Run(flow=DataFlow(takes))))
    assert found.evidence["calls_left"] == 1
    assert "weights of its own" not in found.fix


@pytest.mark.parametrize(("calls", "reported"), [(4, True), (3, False)])
def test_it_fires_from_four_calls_on(calls: int, reported: bool):
    assert bool(find(recording(APART[:calls], calls=calls))) is reported


def test_batch_norm_in_training_makes_it_another_computation():
    (found,) = find(recording(within=("aten::batch_norm",)))
    assert (found.kind, found.severity) == (Kind.OPPORTUNITY, Severity.MEDIUM)
    assert "changes the numbers" in found.fix


def test_calls_that_go_on_by_a_number_python_read_need_their_source():
    """The numbers in the trace leave out the reads, which have no event."""
    takes = tuple(taken for turn in range(8) for taken in ((-10 - turn, -1, -2), (2 * turn,)))
    reads = tuple(range(1, 16, 2))
    assert find(recording(takes, call=FED_BACK, unmarked=reads, reads=reads)) == []
    (found,) = find(recording(takes, unmarked=reads, reads=reads))
    assert found.confidence == 0.7


@pytest.mark.parametrize("flow", [{"takes": None}, {"gaps": (3,)}])
def test_without_the_data_flow_the_source_has_to_show_it(flow: dict[str, Any]):
    (found,) = find(recording(**flow))
    assert found.confidence == 0.7
    assert find(recording(call=FED_BACK, **flow)) == []


@pytest.mark.parametrize(("behind", "left"), [((0, 1, 2, 3, 4, 5, 6), 0), ((1, 3, 5), 0), ((3,), 2), ((), 1)])
def test_calls_with_a_backward_pass_between_them_save_memory(behind: tuple[int, ...], left: int):
    """It has no event of its own in the trace, and comes behind these calls. Without it one call is left."""
    takes, passes = list[tuple[int, ...]](), list[int]()
    for turn in range(8):
        takes.append((-10 - turn, -1, -2))
        if turn in behind:
            passes.append(len(takes))
            takes.append((len(takes) - 1,))
    found = find(recording(tuple(takes), unmarked=tuple(passes), backward=tuple(passes)))
    assert [one.evidence["calls_left"] for one in found] == [left] * bool(left)


def test_by_the_source_no_backward_pass_may_lie_between_the_calls():
    node = op("autograd::engine::evaluate_function: AddmmBackward0", 28, 0.5)
    for events in ([], [node]):
        facts = facts_of([*events, *located_calls()], callsites=(HEAD, CALL))
        assert bool(find(facts)) is not bool(events)


def test_calls_of_one_line_on_other_shapes_are_one_finding():
    """As in a tree, whose nodes have more or fewer children."""
    shapes = [[[4 + turn % 2, 8], [8, 8], [8]] for turn in range(16)]
    takes = tuple((-10 - turn, -1, -2) for turn in range(16))
    (found,) = find(recording(takes, calls=16, shapes=shapes))
    assert (found.count, found.evidence["calls_left"]) == (16, 2)
    assert found.message.startswith("16 calls a step, each on at most 5 rows, could be 2: ")


def located_calls() -> list[Json]:
    events: list[Json] = []
    for i in range(2):
        events.append(step(i, 200.0 * i, 200))
        for turn in range(8):
            start = 200.0 * i + 10 + 10 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 8)]
                events.append(annotation(f"{CALL_MARK}{turn}", start - 0.5, 7.2))
            events.append(op("aten::linear", start, 6, **LINEAR))
    return events


@pytest.mark.parametrize(("rows", "call_us"), [(4096, 20), (16384, 0)])
def test_the_work_of_large_calls_stays(rows: int, call_us: int):
    """Each takes 100 µs, of which 20 are the price of a call, and Python 10: with many rows that is all. What would
    take 4 MiB in one call does not fit the cache, and gains nothing."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 1000.0 * i, 1000))
        for turn in range(8):
            start = 1000.0 * i + 10 + 110 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 102)]
                events.append(annotation(f"{CALL_MARK}{turn}", start - 0.5, 101))
            events.append(op("aten::linear", start, 100, dims=[[rows, 8], [8, 8], [8]], types=LINEAR["types"]))
    facts = facts_of(events, callsites=(HEAD, CALL), run=Run(flow=DataFlow(APART)))
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(
        (8 * call_us + 7 * 10) * 7 / 8 / 1000, abs=2e-3
    )


def test_without_marked_lines_it_does_not_look():
    assert missing_needs(facts_of([step(0, 0, 100), op("aten::linear", 10, 5, **LINEAR)]), unbatched_calls.needs) == [
        Need.LINES
    ]


def test_the_lines_of_a_loop_are_read_once_however_many_of_them_are_asked_about(monkeypatch) -> None:
    """Ten lines of one loop, each of which runs eight times."""
    lines = [CallSite("many.py", 7 + k, "forward", f"parts{k}.append(encoder{k}(word))") for k in range(10)]
    head = CallSite("many.py", 6, "forward", "for word in words:")
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 1000.0 * i, 1000))
        for turn in range(8):
            at = 1000.0 * i + 120 * turn
            events += [mark(0, at + 1, 1)] if i == 0 else []
            for k in range(10):
                events += [mark(1 + k, at + 4 + 10 * k, 8)] if i == 0 else []
                events.append(op("aten::linear", at + 5 + 10 * k, 6, dims=LINEAR["dims"], types=LINEAR["types"]))
    read = []
    real = independent_rounds._statements
    monkeypatch.setattr(independent_rounds, "_statements", lambda sites: read.append(0) or real(sites))
    (found,) = find(facts_of(events, callsites=(head, *lines)))
    assert found.evidence == {"calls": 8, "rows_per_call": 4, "calls_left": 1, **ONE_OPERATOR, "operators_per_call": 10}
    assert len(read) == 1  # the lines of the body, which call no others


LOSS = CallSite("losses.py", 12, "Quantiles.forward", "losses.append(self.error(pred[i], level))")
OVER_LEVELS = CallSite("losses.py", 11, "Quantiles.forward", "for i, level in enumerate(self.levels):")


ASKED = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def rounds(  # noqa: PLR0913  # each test varies one or two of these
    head: CallSite = OVER_LEVELS,
    line: CallSite = LOSS,
    *,
    count: int = 8,
    numbers: int = 6000,
    each_bytes: int = 24_000,
    names: tuple[str, ...] = ("aten::mul",),
    takes: Any = None,
    within: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
    others: int = 0,
    recomputation: Recomputation | None = None,
) -> Any:
    """Steps of 40 µs for each round, whose operators take 6 µs each and make ``each_bytes``. What is ``within`` a
    round are ranges before it. The backward pass runs ``nodes`` for each, the first one of its operator. The first
    rounds, ``others`` of them, have another shape."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 40.0 * count * i, 40.0 * count))
        for turn in range(count):
            start = 40.0 * count * i + 10 + 20 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 8 + 6 * len(names))]
                events += [annotation(name, start - 1.8, 0.2) for name in within]
            for k, name in enumerate(names):
                if i == 0:
                    events.append(annotation(f"{CALL_MARK}{turn * len(names) + k}", start - 0.5 + 6 * k, 5.9))
                shapes = {"dims": [[numbers, 1 + (turn < others)], [1, 1]], "types": ["float"] * 2}
                events.append(op(name, start + 6 * k, 5, sequence=count * i + turn, **shapes))
                events.append(memory(start + 6 * k + 1, each_bytes, 64 * (1 + turn)))
            for k, node in enumerate(nodes):
                at, number = 40.0 * count * (i + 1) - 10 * (turn + 1) + 4 * k, count * i + turn if k == 0 else None
                events.append(op(f"autograd::engine::evaluate_function: {node}", at, 3, sequence=number))
    taken = takes or tuple((-10, -1) for _ in range(count) for _ in names)
    return facts_of(events, callsites=(head, line), run=Run(flow=DataFlow(taken), recomputation=recomputation))


def test_rounds_of_a_loop_that_multiply_nothing_are_reported_too():
    (found,) = find(rounds())
    assert found.message == "8 equal rounds of a loop a step could be one: none needs another's result."
    assert found.fix.startswith("Write the body once")
    assert found.evidence["largest_result_at_once_bytes"] == 8 * 24_000
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also], found.kind) == (12, [11], None)


@pytest.mark.parametrize(("numbers", "is_reported"), [(4096, False), (4097, True)])
def test_loops_that_another_rule_reports_are_left_to_it(numbers: int, is_reported: bool):
    """From 64 rounds on few numbers on they are loops over a list of tensors."""
    assert bool(find(rounds(numbers=numbers, count=64))) is is_reported


@pytest.mark.parametrize(("each_bytes", "is_reported"), [(2 << 20, True), ((2 << 20) + 8, False)])
def test_rounds_whose_results_would_be_large_are_better_apart(each_bytes: int, is_reported: bool):
    assert bool(find(rounds(each_bytes=each_bytes))) is is_reported


def test_a_sum_over_the_rounds_is_no_chain_and_another_use_of_earlier_results_is():
    """Each round multiplies, then adds what it has to what the round before left; or multiplies that."""
    names = ("aten::mul", "aten::add")
    summed = tuple(taken for turn in range(8) for taken in ((-10 - turn, -1), (2 * turn - 1, 2 * turn)))
    chained = tuple(taken for turn in range(8) for taken in ((2 * turn - 1, -1), (2 * turn, -2)))
    assert find(rounds(names=names, takes=summed))
    assert find(rounds(names=names, takes=chained)) == []


def test_a_loop_that_only_adds_to_a_state_is_silent():
    """Position and speed of a body, each of which takes the other of the round before."""
    names = ("aten::add_", "aten::sub_")
    taken = tuple(pair for turn in range(8) for pair in ((2 * turn - 2, 2 * turn - 1), (2 * turn - 1, 2 * turn)))
    assert find(rounds(names=names, takes=taken)) == []


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("for p in model.parameters():", "norms.append(p * p)"),
        ("for layer in layers:", "norms.append(layer.weight * layer.weight)"),
        ("for act in self.activations:", "outs.append(act(x))"),
        ("for _ in range(8):", "y = x * w"),
    ],
    ids=["parameters", "weights", "modules", "the same again"],
)
def test_loops_that_are_no_rounds_of_one_body_are_silent(head: str, line: str):
    sites = (CallSite("losses.py", 11, "step", head), CallSite("losses.py", 12, "step", line))
    assert find(rounds(*sites)) == []


@pytest.mark.parametrize(("repeated", "is_reported"), [(7, False), (4, False), (3, True), (0, True)])
def test_rounds_of_which_half_compute_the_same_again_are_no_batch(repeated: int, is_reported: bool):
    """A graph that each layer normalises, through a function: the lines do not show that it is the same."""
    again = tuple((8 - turn, 0) for turn in range(1, repeated + 1))
    assert bool(find(rounds(recomputation=Recomputation(again=again)))) is is_reported


def test_what_is_drawn_anew_in_each_round_is_not_the_same_again():
    sites = (
        CallSite("a.py", 11, "step", "for _ in range(8):"),
        CallSite("a.py", 12, "step", "ys.append(rand_like(x))"),
    )
    (found,) = find(rounds(*sites, names=("aten::rand_like", "aten::mul")))
    assert "other numbers" in found.fix


@pytest.mark.parametrize("name", ["aten::mul", "aten::linear"])
def test_the_batches_of_a_loader_are_silent(name: str):
    assert find(rounds(within=(ASKED,), names=(name,))) == []


def test_batches_of_one_sample_are_not():
    (found,) = find(rounds(within=(ASKED,), names=("aten::linear",), numbers=1))
    assert found.message == "8 equal calls a step, each on 1 row, could be one: none needs another's result."
    assert found.fix.startswith("Give the DataLoader a larger `batch_size`")


@pytest.mark.parametrize(("node", "is_reported"), [("AccumulateGrad", False), ("SumBackward0", True)])
def test_rounds_with_a_parameter_each_are_no_rounds_of_one_body(node: str, is_reported: bool):
    assert bool(find(rounds(nodes=("MulBackward0", node)))) is is_reported


@pytest.mark.parametrize(("name", "is_reported"), [("aten::mul_", False), ("aten::copy_", True)])
def test_rounds_that_write_to_what_they_go_through_are_silent(name: str, is_reported: bool):
    """`copy_` is how a place in a result is filled, beside what computes it."""
    names = (name, "aten::exp") if is_reported else (name,)
    assert bool(find(rounds(names=names))) is is_reported


def test_rounds_on_tensors_of_their_own_may_differ_in_size_on_other_data():
    (found,) = find(rounds(takes=tuple((-10 - turn, -1) for turn in range(8))))
    assert (found.kind, found.severity) == (Kind.OPPORTUNITY, Severity.MEDIUM)
    assert "padding" in found.fix


@pytest.mark.parametrize(("others", "is_reported"), [(2, True), (3, False)])
def test_lists_of_tensors_of_several_shapes_are_no_batch(others: int, is_reported: bool):
    """As the weights and biases of a model. One or two of eight rounds may differ, as the first one of a sum does."""
    facts = rounds(others=others)
    assert bool(find(facts)) is is_reported


TASK = CallSite("meta.py", 7, "Meta.step", "loss = self.loss_of(task)")
PASS = CallSite("meta.py", 8, "Meta.step", "loss.backward()")
NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def tasks(
    head: str = "for task in tasks:", line: CallSite = TASK, each_bytes: int = 1000, updates: bool = False
) -> Any:
    """Three steps of 400 µs with eight tasks each: a product of 6 µs, and after 4 µs a backward pass of as much."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 400.0 * i, 400))
        for turn in range(8):
            start = 400.0 * i + 10 + 40 * turn
            if i == 0:
                events += [mark(0, start - 1.4, 0.2), mark(1, start - 1, 8), mark(2, start + 9, 9)]
            events += [op("aten::linear", start, 6, sequence=8 * i + turn, **LINEAR)]
            events.append(op(NODE, start + 10, 6, sequence=8 * i + turn))
            events += [memory(start + 1, each_bytes, 64 * (1 + turn))] * bool(each_bytes)
            events += [
                annotation("Optimizer.step#SGD.step", start + 17, 2),
                op("aten::add_", start + 17.5, 1),
            ] * updates
    return facts_of(events, callsites=(CallSite("meta.py", 6, "Meta.step", head), line, PASS))


def test_rounds_with_a_backward_pass_each_are_a_chance_where_they_save_no_memory():
    (found,) = find(tasks())
    assert (found.kind, found.severity, found.count) == (Kind.OPPORTUNITY, Severity.MEDIUM, 8)
    assert found.message.endswith("Each has a backward pass of its own, though all together take little memory.")
    assert "`backward` once" in found.fix


@pytest.mark.parametrize(
    "accumulating",
    [
        {"each_bytes": 0},
        {"each_bytes": (2 << 20) + 8},
        {"head": "for task in tasks.chunk(8):"},
        {"head": "for task in range(0, 64, 8):"},
        {"updates": True},
        {"line": CallSite("meta.py", 7, "Meta.step", "loss = self.loss_of(task, loss)")},
        {"line": CallSite("meta.py", 7, "Meta.step", "loss = self.loss_of(task, self.w.grad)")},
    ],
    ids=["unknown memory", "large", "parts", "strides", "updates", "carried", "gradients"],
)
def test_accumulation_of_gradients_and_training_are_silent(accumulating: dict[str, Any]):
    assert find(tasks(**accumulating)) == []


def test_the_backward_pass_between_two_rounds_is_part_of_their_price():
    """From the first product to the end of the last pass 296 µs, of which an eighth stays, and all gaps are short."""
    facts = tasks()
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(296 * 7 / 8 / 400, abs=0.01)
