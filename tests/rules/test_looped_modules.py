"""Loops over modules of one shape: reported where the source shows that the calls do not need each other."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.core.marks import CALL_MARK
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.looped_modules import looped_modules
from profkit.run.directory import CallSite, DataFlow, Run
from profkit.run.experiment import Case, Experiment
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, step

Json = dict[str, Any]
COMPREHENSION = CallSite("vote.py", 7, "predict", "scores = torch.stack([model(x) for model in models])")
SEQUENTIAL = CallSite("net.py", 9, "Net.forward", "x = layer(x)")
CELL = 10.0


def find(facts) -> list[Suspicion]:
    return list(looped_modules.check(facts))


def linears(start: float, calls: int, rows: int = 4, marked: bool = False) -> list[Json]:
    """Calls of 6 µs with 4 µs of Python after each; the marks of a located step lie around each of them."""
    events = []
    for i in range(calls):
        at = start + CELL * i
        events += [mark(0, at - 1, 8)] if marked else []
        events += [op("aten::linear", at, 6, dims=[[rows, 8], [8, 8]], types=["float", "float"])]
    return events


OWN = CallSite("parts.py", 7, "forward", "y = [head(part) for head, part in zip(self.heads, x.unbind(1))]")


def recording(calls: int = 5, site: CallSite = COMPREHENSION, rows: tuple[int, ...] = ()) -> Any:
    """Two measured steps of 100 µs and a located one, each with the calls."""
    events: list[Json] = []
    for i in range(3):
        at = 100.0 * i
        marked = i == 2
        shapes = rows or (4,) * calls
        events.append(step(i, at, 100))
        for k, size in enumerate(shapes):
            events += linears(at + 10 + CELL * k, 1, size, marked)
    return facts_of(events, callsites=(site,))


def test_modules_called_one_by_one_on_one_input_are_reported_on_their_line():
    (found,) = find(recording())
    assert found.count == 5
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("vote.py", 7)
    assert found.evidence == {"calls": 5, "operators_per_call": 1}


def test_the_saving_is_what_all_calls_but_one_spend_on_dispatch_and_python():
    # A call is 6 µs of an operator, all of it dispatch here, and 4 µs of Python, but for the last: 46 µs in all,
    # of which 4 / 5 vanish.
    facts = recording()
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(46 * 0.8 / 100, abs=1e-3)


def test_it_hands_over_one_call_and_prices_the_operators_by_what_a_batch_leaves():
    """30 µs of operators, of which a fourth is left, and 16 µs of Python, of which a fifth."""
    facts = recording()
    trial = find(facts)[0].trial
    assert trial is not None
    case = Case("linear", ((4, 8), (8, 8)), "float32", 1.0)
    assert trial.experiment == Experiment("batched-products", (case,), count=5)
    saved = 30 * 0.75 + 16 * 0.8
    assert predict_saving(facts, trial.edit_of(0.25)).fraction == pytest.approx(saved / 100, abs=1e-3)


@pytest.mark.parametrize(("calls", "reported"), [(4, True), (3, False)])
def test_it_fires_from_four_calls_on(calls: int, reported: bool):
    assert bool(find(recording(calls))) is reported


def test_layers_that_feed_each_other_are_silent():
    assert find(recording(site=SEQUENTIAL)) == []


def test_time_steps_through_one_module_are_silent():
    source = "outputs = torch.stack([self.cell(x[:, t]) for t in range(steps)])"
    assert find(recording(site=CallSite("rnn.py", 3, "forward", source))) == []


def test_modules_of_different_shapes_are_silent():
    assert find(recording(rows=(4, 5, 4, 5, 4))) == []


def test_a_loop_of_operators_without_parameters_is_silent():
    events = []
    for i in range(3):
        events.append(step(i, 100.0 * i, 100))
        for k in range(6):
            at = 100.0 * i + 10 + 10 * k
            events += [mark(0, at - 1, 8)] if i == 2 else []
            events.append(op("aten::relu", at, 6, dims=[[4]], types=["float"]))
    assert find(facts_of(events, callsites=(COMPREHENSION,))) == []


def test_without_marked_lines_it_does_not_look():
    assert missing_needs(facts_of([step(0, 0, 100), *linears(10, 5)]), looped_modules.needs) == [Need.LINES]


def test_what_runs_between_two_loops_of_a_step_is_not_the_loops():
    """The line runs twice in a step; the 40 µs of a convolution in between stay."""
    events: list[Json] = []
    for i in range(3):
        at = 200.0 * i
        events += [step(i, at, 200), *linears(at + 10, 4, marked=i == 2), op("aten::conv2d", at + 60, 40)]
        events += linears(at + 110, 4, marked=i == 2)
        events += [mark(1, at + 5, 50), mark(1, at + 105, 50)] if i == 2 else []
    facts = facts_of(events, callsites=(COMPREHENSION, CallSite("net.py", 30, "forward", "x = block(x)")))
    (found,) = find(facts)
    assert (found.count, found.evidence["calls"]) == (8, 4)
    saved = 2 * 36 * 3 / 4
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(saved / 200, abs=1e-3)


def test_the_arithmetic_of_large_modules_stays():
    """Each product takes 59 µs: at most 20 µs of that is the call, whatever the cheapest takes."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 500.0 * i, 500))
        for k in range(5):
            at = 500.0 * i + 10 + 60 * k
            events += [mark(0, at - 0.5, 60)] if i == 2 else []
            events.append(op("aten::linear", at, 59, dims=[[4, 8], [8, 8]], types=["float", "float"]))
    facts = facts_of(events, callsites=(COMPREHENSION,))
    saved = (5 * 20 + 4 * 1) * 4 / 5
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(saved / 500, abs=1e-3)


def trained(update: str = "aten::add_", others: int = 0) -> Any:
    """Of each call a node of 5 µs and the accumulation of a gradient of 2 µs, and the engine's 1 µs between. Then an
    optimizer updates each parameter in 4 µs, with 1 µs between, and clears the gradients in 20 µs. As many ``others``
    have a gradient each, but no call in the loop."""
    events: list[Json] = []
    for i in range(3):
        at = 300.0 * i
        forward = linears(at + 10, 5, marked=i == 2)
        number = int(1000 * i)
        for k, event in enumerate(one for one in forward if one["name"] == "aten::linear"):
            event["args"]["Sequence number"] = number + k
        names = ("AddmmBackward0", "torch::autograd::AccumulateGrad")
        nodes = [
            op(
                f"autograd::engine::evaluate_function: {name}",
                at + 100 + 8 * k + 5.5 * (name != names[0]),
                5 if name == names[0] else 2,
                sequence=number + k if name == names[0] else None,
            )
            for k in range(5 + others)
            for name in names
        ]
        updates = [op(update, at + 202 + 5 * k, 4) for k in range(5)] if update else []
        around = [annotation("Optimizer.step#SGD.step", at + 200, 28)] if update else []
        cleared = [annotation("Optimizer.zero_grad#SGD.zero_grad", at + 240, 20)] if update else []
        events += [step(i, at, 300), *forward, *nodes, *around, *updates, *cleared]
    return facts_of(events, callsites=(COMPREHENSION,))


@pytest.mark.parametrize(
    ("update", "others", "optimizer_us"),
    [("", 0, 0), ("aten::add_", 0, 24 + 20), ("aten::add_", 5, 12 + 10), ("aten::_foreach_add_", 0, 20)],
)
def test_the_backward_pass_and_the_optimizer_pay_once_too(update: str, others: int, optimizer_us: float):
    """Of the optimizer's work the modules have the share of the gradients that are theirs; lists are taken at once."""
    facts = trained(update, others)
    forward_us, backward_us = 46, 39.5
    saved = (forward_us + backward_us + optimizer_us) * 4 / 5
    assert predict_saving(facts, find(facts)[0].edit).fraction == pytest.approx(saved / 300, abs=2e-3)


def test_a_pair_of_modules_called_in_each_of_many_rounds_is_silent():
    """Two are an architecture, however often a step runs the line: its marks alternate with the loop head's."""
    pair = CallSite("net.py", 30, "train", "a, b = [tower(x) for tower in towers]")
    head = CallSite("net.py", 29, "train", "for x in batches:")
    events: list[Json] = []
    for i in range(3):
        at = 200.0 * i
        events.append(step(i, at, 200))
        for k in range(4):
            start = at + 10 + 40 * k
            events += linears(start, 2, marked=i == 2)
            events += [mark(1, start - 5, 3), mark(0, start - 1.5, 20)] if i == 2 else []
    assert find(facts_of(events, callsites=(pair, head))) == []


LAMBDA = CallSite("vote.py", 3, "<module>.<lambda>", "ask = lambda net: net(x)")


def mapped(own: CallSite, around: str) -> Any:
    """Calls of a function at line 3, all of them during one line that stands elsewhere."""
    events: list[Json] = []
    for i in range(3):
        at = 100.0 * i
        events += [step(i, at, 100), *linears(at + 10, 5, marked=i == 2)]
        events += [mark(1, at + 5, 60)] if i == 2 else []
    return facts_of(events, callsites=(own, CallSite("vote.py", 20, "predict", around)))


@pytest.mark.parametrize("around", ["answers = list(map(ask, nets))", "answers = [ask(net) for net in nets]"])
def test_the_place_of_calls_in_a_named_lambda_is_the_loop_that_calls_it(around: str):
    (found,) = find(mapped(LAMBDA, around))
    assert found.location is not None
    assert found.location.line == 20


@pytest.mark.parametrize(
    "source",
    [
        "vote = lambda x: [net(x) for net in nets]",
        "vote = lambda x: list(map(lambda net: net(x), nets))",
        "scores = torch.stack([net(x) for net in nets])  # lambda",
    ],
)
def test_a_line_that_loops_itself_is_the_place_whoever_maps_it(source: str):
    (found,) = find(mapped(CallSite("vote.py", 3, "vote", source), "answers = list(map(vote, inputs))"))
    assert found.location is not None
    assert found.location.line == 3


def test_modules_with_inputs_of_their_own_are_told_so_and_priced_alike():
    (found,) = find(recording(site=OWN))
    (shared,) = find(recording())
    assert "5 modules of one shape" in found.message
    assert "each on an input of its own" in found.message
    assert "own" not in shared.message
    assert "and their inputs" in found.fix
    assert "inputs" not in shared.fix
    saving = [predict_saving(recording(), one.edit).fraction for one in (found, shared)]
    assert saving[0] == saving[1] > 0


def test_inputs_of_their_own_have_to_be_of_one_size_in_every_round():
    """On one input a row of five is enough; what a router sends has another size now and then."""
    assert find(recording(site=OWN, rows=(4, 4, 4, 4, 4, 7))) == []
    assert len(find(recording(rows=(4, 4, 4, 4, 4, 7)))) == 1


def test_inputs_of_their_own_have_to_be_of_one_size_in_every_step():
    """In the located step all of them are, by chance."""
    sizes = [(4, 5, 4, 6, 4), (5, 4, 4, 4, 6), (4,) * 5]
    events: list[Json] = []
    for i, rows in enumerate(sizes):
        events.append(step(i, 100.0 * i, 100))
        for k, size in enumerate(rows):
            events += linears(100.0 * i + 10 + CELL * k, 1, size, marked=i == 2)
    assert find(facts_of(events, callsites=(OWN,))) == []


def trained_apart(site: CallSite) -> Any:
    """A backward node after each of the calls."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 100.0 * i, 100))
        for k in range(5):
            at = 100.0 * i + 10 + CELL * k
            events += linears(at, 1, marked=i == 2)
            events.append(op("autograd::engine::evaluate_function: AddmmBackward0", at + 7.5, 1, tid=2))
    return facts_of(events, callsites=(site, CallSite("train.py", 6, "train", "for net, x in zip(nets, xs):")))


def test_modules_that_are_each_trained_on_inputs_of_their_own_are_silent():
    assert find(trained_apart(OWN)) == []
    assert len(find(trained_apart(COMPREHENSION))) == 1


TABLES = CallSite("clicks.py", 9, "forward", "x = [table(x[:, i]) for i, table in enumerate(self.tables)]")


def tables(heights: tuple[int, ...], widths: tuple[int, ...] = ()) -> Any:
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 100.0 * i, 100))
        for k, (height, width) in enumerate(zip(heights, widths or (8,) * len(heights), strict=True)):
            at = 100.0 * i + 10 + CELL * k
            events += [mark(0, at - 1, 8)] if i == 2 else []
            events.append(op("aten::embedding", at, 6, dims=[[height, width], [32]], types=["float", "long int"]))
    return facts_of(events, callsites=(TABLES,))


def test_embedding_tables_of_one_width_and_any_height_are_reported():
    (found,) = find(tables((10, 500, 3, 40)))
    assert "4 embedding tables" in found.message
    assert "one `nn.Embedding`" in found.fix
    assert found.trial is None


@pytest.mark.parametrize("widths", [(8, 4, 8, 4), (8, 8, 8, 16)])
def test_embedding_tables_of_other_widths_are_silent(widths: tuple[int, ...]):
    assert find(tables((10, 500, 3, 40), widths)) == []


def test_convolutions_are_told_to_become_groups():
    site = CallSite("bands.py", 4, "forward", "y = [conv(x[:, i]) for i, conv in enumerate(self.convs)]")
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 100.0 * i, 100))
        for k in range(4):
            at = 100.0 * i + 10 + CELL * k
            events += [mark(0, at - 1, 8)] if i == 2 else []
            events.append(op("aten::conv2d", at, 6, dims=[[2, 3, 8, 8], [4, 3, 3, 3]], types=["float", "float"]))
    (found,) = find(facts_of(events, callsites=(site,)))
    assert "`groups=4`" in found.fix


ALONE = tuple((-10 - turn, -20 - turn, -30 - turn) for turn in range(5))
IN_TURN = tuple((turn - 1 if turn else -10, -20 - turn, -30 - turn) for turn in range(5))
ONE_MODULE = tuple((-10 - turn, -1, -2) for turn in range(5))
TWO_MODULES = tuple((-10 - turn, -1 - turn % 2, -3 - turn % 2) for turn in range(5))


@pytest.mark.parametrize(
    ("takes", "reported"), [(ALONE, True), (IN_TURN, False), (ONE_MODULE, False), (TWO_MODULES, False)]
)
@pytest.mark.parametrize("is_known", [True, False])
def test_where_the_data_flow_is_known_it_has_to_agree(takes: Any, reported: bool, is_known: bool):
    """Each call takes an input, a weight and a bias. One call may take the result of another through an object, and a
    list may hold one module several times."""
    events: list[Json] = []
    for i in range(3):
        events.append(step(i, 100.0 * i, 100))
        for k in range(5):
            at = 100.0 * i + 10 + CELL * k
            events += linears(at, 1, marked=i == 2)
            events += [annotation(f"{CALL_MARK}{k}", at - 0.5, 7)] if i == 2 else []
    run = Run(flow=DataFlow(takes, gaps=() if is_known else (2,)))
    assert bool(find(facts_of(events, callsites=(OWN,), run=run))) is (reported or not is_known)
