"""unused-autograd-graph: the line, and the memory."""

from __future__ import annotations

import pytest

from profkit.run.directory import CallSite
from tests.rules.forward_passes import LENGTH, backward, ending, evaluating, find, forward, located, training
from tests.traces import facts_of, mark, memory, step

SITES = (
    CallSite("eval.py", 50, "main", "evaluate(net)"),
    CallSite("eval.py", 20, "evaluate", "scores = net(x)"),
    CallSite("model.py", 8, "Net.forward", "return self.head(self.body(x))"),
    CallSite("model.py", 3, "Body.forward", "return torch.relu(self.lin(x))"),
    CallSite("eval.py", 21, "evaluate", "loss = criterion(scores, y)"),
)


def test_the_line_is_the_one_that_calls_the_outermost_module():
    (found,) = find(facts_of(located((0, 1, 2, 3)), callsites=SITES))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("eval.py", 20)
    assert found.also == ()


@pytest.mark.parametrize(("calls_module", "line"), [(True, 70), (False, 82)])
def test_a_callable_is_part_of_the_model_unless_it_calls_a_module(calls_module, line):
    """A predictor is a class of the program's own as much as a layer that is a plain callable."""
    sites = (
        CallSite("predict.py", 82, "main", "predictor(image)"),
        CallSite("predict.py", 70, "Predictor.__call__", "votes = self.net(tile)"),
        CallSite("model.py", 8, "Net.forward", "return self.head(x)"),
    )
    (found,) = find(facts_of(located((0, 1, 2) if calls_module else (0, 1)), callsites=sites))
    assert found.location is not None
    assert found.location.line == line


def test_without_a_module_the_innermost_line_is_named():
    (found,) = find(facts_of(located((0, 4)), callsites=SITES))
    assert found.location is not None
    assert found.location.line == 21


def test_further_lines_stand_beside_the_one_that_makes_most_nodes():
    (found,) = find(facts_of(located((0, 1, 2), (0, 1, 2, 3), (0, 4)), callsites=SITES))
    assert found.location is not None
    assert found.location.line == 20
    assert [place.line for place in found.also] == [21]


def test_a_pass_that_no_located_step_shows_has_no_line():
    """The located step trains only: its lines would be the wrong ones for the pass that is not used."""
    first = [
        step(0, 0, LENGTH),
        mark(4, 1, 400),
        *forward(10, 500, 4),
        *ending(450, 504),
        *backward(600, range(500, 504)),
    ]
    later = [{**event, "ts": event["ts"] + LENGTH} for event in training(used=4, unused=12)]
    (found,) = find(facts_of([*first, *later], callsites=SITES))
    assert found.location is None
    assert not found.rows.size


def test_the_peak_falls_by_what_only_the_graph_keeps():
    """Six operators of 100 bytes each, freed together: 600 at the peak, of which without a graph an operator's own
    100 and its input's 100 are needed."""
    events = []
    for i in range(3):
        at = LENGTH * i
        events += [step(i, at, LENGTH), *forward(at + 10, 6 * i, 6), *ending(at + 100, 6 * i + 6)]
        events += [memory(at + 12 + 10 * k, 100, 10 * i + k) for k in range(6)]
        events += [memory(at + 500 + k, -100, 10 * i + k) for k in range(6)]
    (found,) = find(facts_of(events))
    assert found.size_bytes == 600 - 200
    assert found.peak_fraction == pytest.approx(2 / 3)


def test_the_last_outputs_graph_counts_while_the_next_is_made():
    """Each step's six blocks are freed in the next step, after that one's were made: 1200 bytes at the peak."""
    events = []
    for i in range(3):
        at = LENGTH * i
        events += [step(i, at, LENGTH), *forward(at + 10, 6 * i, 6), *ending(at + 100, 6 * i + 6)]
        events += [memory(at + 12 + 10 * k, 100, 10 * i + k) for k in range(6)]
        events += [memory(at + 500 + k, -100, 10 * (i - 1) + k) for k in range(6) if i]
    (found,) = find(facts_of(events))
    assert found.size_bytes == 1200 - 200
    assert found.peak_fraction == pytest.approx(5 / 6)


def test_in_training_only_what_the_unused_pass_made_counts():
    """At the peak 500 bytes of the teacher's graph are live, and 4000 of the student's, made before in each step."""
    events = training(used=12, unused=12)
    for i in range(3):
        at = LENGTH * i
        events += [memory(at + 5 + 10 * k, 100, 100 * i + k) for k in range(5)]
        events += [memory(at + 315 + 10 * k, 1000, 100 * i + 50 + k) for k in range(4)]
        events += [memory(at + 800 + k, -1000, 100 * i + 50 + k) for k in range(4)]
        events += [memory(at + 900 + k, -100, 100 * i + k) for k in range(5)]
    (found,) = find(facts_of(events))
    assert found.size_bytes == 500 - 200
    assert found.peak_fraction == pytest.approx(300 / 4500)


@pytest.mark.parametrize(("others", "reported"), [(2700, 1), (2701, 0)])
def test_a_few_unused_nodes_that_keep_a_tenth_of_the_peak_are_a_small_teacher(others, reported):
    """Of 500 bytes of its graph 200 are needed anyway: 300 of 3000."""
    events = training(used=12, unused=6)
    for i in range(3):
        at = LENGTH * i
        events += [memory(at + 5 + 10 * k, 100, 100 * i + k) for k in range(5)]
        events += [memory(at + 315, others - 200, 100 * i + 50), memory(at + 800, 200 - others, 100 * i + 50)]
        events += [memory(at + 900 + k, -100, 100 * i + k) for k in range(5)]
    found = find(facts_of(events))
    assert [(one.count, one.size_bytes) for one in found] == [(6, 300)] * reported


def test_two_unused_nodes_are_none_whatever_they_keep():
    events = training(used=4, unused=2)
    for i in range(3):
        at = LENGTH * i
        events += [memory(at + 5 + 10 * k, 100, 100 * i + k) for k in range(2)]
        events += [memory(at + 900 + k, -100, 100 * i + k) for k in range(2)]
    assert find(facts_of(events)) == []


def test_what_training_leaves_to_the_next_step_is_not_the_unused_passs():
    events = training(used=12, unused=12)
    for i in range(3):
        at = LENGTH * i
        events += [memory(at + 5, 100, 100 * i), memory(at + 320, 1000, 100 * i + 1), memory(at + 900, -100, 100 * i)]
        events += [memory(at + 700, -1000, 100 * (i - 1) + 1)] if i else []
    (found,) = find(facts_of(events))
    assert found.size_bytes == 0


def test_outputs_that_are_kept_on_purpose_are_not_counted():
    events = evaluating()
    events += [memory(LENGTH * i + 15, 1000, i + 1) for i in range(3)]  # never freed
    (found,) = find(facts_of(events))
    assert found.size_bytes == 0
