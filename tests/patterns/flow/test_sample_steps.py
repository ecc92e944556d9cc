"""Steps that are rounds of a loop over samples, and steps that only look like it."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.patterns.flow.sample_steps import sample_loop
from profkit.rules.unbatched_calls import unbatched_calls
from profkit.run.directory import CallSite, LoaderUse, Run
from tests.traces import facts_of, mark, memory, op, step

HEAD = "for text in texts:"
CALL = "scores = model(encode(text))"
KEPT = "results.append(scores.softmax(1)[0, 1].item())"
ONE = {"dims": [[1, 8], [4, 8], [4]], "types": ["float"] * 3}


def facts(
    *lines: str, samples: int = 1, run: Run | None = None, name: str = "aten::linear", more: tuple[Any, ...] = ()
) -> Any:
    """A located step and three measured ones of 100 µs, each with a layer of 20 µs and one of 5 µs. The first begins
    with the last line of the loop, and ends in the last but one, around the layers, which the model's own line calls.
    """
    lines = lines or (HEAD, CALL, KEPT)
    sites = (CallSite("a.py", 30, "main", "main()"), CallSite("a.py", 9, "Net.forward", "return self.head(x)"))
    sites += tuple(CallSite("a.py", 12 + at, "predict", line) for at, line in enumerate(lines))
    dims = [[samples, 8], [4, 8], [4]]
    events = [mark(0, 0.5, 99), mark(1 + len(lines), 1, 4)]
    events += [mark(2 + at, 6 + 5 * at, 60 if at == len(lines) - 2 else 4) for at in range(len(lines) - 1)]
    events.append(mark(1, 30, 30))
    for i in range(4):
        at = 100.0 * i
        events += [step(i, at, 100), op(name, at + 31, 20, dims=dims, types=ONE["types"])]
        events.append(op("aten::relu", at + 53, 5, dims=[[samples, 4]], types=["float"]))
    run = run or Run(step_signal="forward")
    return facts_of([*events, *more], callsites=sites, run=run)


def test_a_loop_over_samples_is_found_at_the_line_that_calls_the_model():
    found = sample_loop(facts())
    assert found is not None
    assert (found.head.source, found.call.source) == (HEAD, CALL)
    assert len(found.rows) == 6


def test_autograd_may_be_off_around_the_call():
    assert sample_loop(facts(HEAD, "with torch.no_grad():", CALL, KEPT)) is not None


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((HEAD, "scores, state = model(text, state)", KEPT), id="a state"),
        pytest.param(("while True:", "scores = model(state)", "reward, state = env.step(scores)"), id="an environment"),
        pytest.param(("for _ in range(100):", "scores = model(x)", "times.append(clock())"), id="a benchmark"),
        pytest.param((HEAD, "with open(path) as file:", CALL, KEPT), id="a file"),
        pytest.param(("text = queue.get()", CALL, "write(scores)"), id="no loop"),
    ],
)
def test_rounds_that_may_need_each_other_or_repeat_each_other_are_none(lines):
    assert sample_loop(facts(*lines)) is None


@pytest.mark.parametrize("samples", [2, 16])
def test_several_samples_are_a_batch(samples):
    assert sample_loop(facts(samples=samples)) is None


@pytest.mark.parametrize(
    "run",
    [
        Run(step_signal="optimizer"),
        Run(step_signal="forward", signals_per_step=8),
        Run(step_signal="forward", loaders=(LoaderUse(0, 1, False, False),)),
    ],
)
def test_other_steps_and_those_with_a_loader_are_left_to_other_rules(run):
    assert sample_loop(facts(run=run)) is None


def test_without_a_layer_that_tells_samples_or_without_lines_nothing_is_found():
    assert sample_loop(facts(name="aten::mm")) is None
    events = [one for i in range(4) for one in (step(i, 100 * i, 100), op("aten::linear", 100 * i + 9, 20, **ONE))]
    assert sample_loop(facts_of(events, run=Run(step_signal="forward"))) is None


def test_it_is_an_opportunity_of_unbatched_calls():
    (found,) = unbatched_calls.check(facts())
    assert found.location is not None
    assert (found.location.source, [place.source for place in found.also]) == (CALL, [HEAD])
    assert "so 16 samples could share a call" in found.message
    assert "pad_sequence" in found.fix


SINGLE = Run(step_signal="dataloader", loaders=(LoaderUse(0, 1, False, False),))


def results(*sizes: int) -> tuple[Any, ...]:
    """What the layer of each step makes, in bytes."""
    return tuple(memory(100.0 * i + 40, size, 64 + i) for i, size in enumerate(sizes))


def test_a_loader_of_single_samples_of_one_size_should_give_more():
    (found,) = unbatched_calls.check(facts(run=SINGLE, more=results(64, 64, 64, 64)))
    assert "so 16 samples could share a call" in found.message
    assert "larger `batch_size`" in found.fix


@pytest.mark.parametrize(
    ("run", "more"),
    [
        pytest.param(SINGLE, results(64, 64, 128, 64), id="samples of different sizes"),
        pytest.param(SINGLE, (), id="unknown memory"),
        pytest.param(Run(step_signal="dataloader", loaders=(LoaderUse(0, 8, False, False),)), results(64, 64, 64, 64)),
        pytest.param(Run(step_signal="dataloader", loaders=(LoaderUse(0, None, False, False),)), results(1, 1, 1, 1)),
    ],
)
def test_a_loader_may_give_single_samples_because_they_differ(run: Run, more: tuple[Any, ...]):
    assert sample_loop(facts(run=run, more=more)) is None
