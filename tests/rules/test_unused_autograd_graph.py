"""Graphs that no backward pass uses, and graphs whose backward pass is only elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosing import diagnose, read_facts
from profkit.findings import Severity
from profkit.remarks import EVALUATION_WITH_GRAD
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.unused_autograd_graph import unused_autograd_graph
from profkit.run import CallSite, LiveHolder, LiveSample, Remark, Run
from tests.traces import annotation, facts_of, mark, memory, op, rows_named, step

Json = dict[str, Any]
LENGTH = 1000


def find(facts) -> list[Suspicion]:
    return list(unused_autograd_graph.check(facts))


def forward(at: float, first: int, nodes: int = 12) -> list[Json]:
    """Operators that make a node each: the numbers rise."""
    return [op("aten::linear", at + 10 * k, 9, sequence=first + k) for k in range(nodes)]


def ending(at: float, number: int) -> list[Json]:
    """An operator without a graph that uses the number which the next node would have."""
    return [op("aten::argmax", at, 5, sequence=number)]


def backward(at: float, numbers: range) -> list[Json]:
    return [op("autograd::engine::evaluate_function: AddmmBackward0", at + 10 * k, 9, sequence=number)
            for k, number in enumerate(reversed(numbers))]  # fmt: skip


def evaluating(steps: int = 3, nodes: int = 12) -> list[Json]:
    events = []
    for i in range(steps):
        at, first = LENGTH * i, nodes * i
        events += [step(i, at, LENGTH), *forward(at + 1, first, nodes), *ending(at + 500, first + nodes)]
    return events


def training(steps: int = 3, used: int = 12, unused: int = 0, seen: int | None = None) -> list[Json]:
    """Steps that make ``unused`` nodes and then ``used`` ones, and run these backward in the first ``seen`` steps."""
    events = []
    for i in range(steps):
        at, first = LENGTH * i, (used + unused) * i
        events += [step(i, at, LENGTH), *forward(at + 1, first, unused), *ending(at + 300, first + unused),
                   *forward(at + 310, first + unused, used), *ending(at + 500, first + unused + used)]  # fmt: skip
        if seen is None or i < seen:
            events += backward(at + 600, range(first + unused, first + unused + used))
    return events


def test_an_evaluation_with_a_graph_is_reported():
    facts = facts_of(evaluating())
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, "aten::linear")
    assert found.count == 12
    assert found.confidence == 0.9
    assert "12 operators a step" in found.message
    assert "inference_mode" in found.fix
    assert found.edit is None


def test_operators_without_a_graph_use_one_number_for_all():
    events = [event for i in range(3) for event in (step(i, LENGTH * i, LENGTH), *(
        op("aten::linear", LENGTH * i + 10 * k, 9, sequence=5) for k in range(12)))]  # fmt: skip
    assert find(facts_of(events)) == []


def test_operators_in_inference_mode_have_no_number():
    events = [event for i in range(3) for event in (step(i, LENGTH * i, LENGTH), op("aten::linear", LENGTH * i, 9))]
    assert find(facts_of(events)) == []


@pytest.mark.parametrize(
    "proof",
    [
        backward(2600, range(24, 36)),
        [annotation("Optimizer.step#SGD.step", 2600, 50)],
        [op("NllLossBackward", 2600 + 10 * k, 9, sequence=35 - k) for k in range(12)],
    ],
    ids=["a backward pass", "an optimizer", "a backward pass of 2021"],
)
def test_a_recording_that_trains_somewhere_is_no_evaluation(proof):
    assert find(facts_of([*evaluating(), *proof])) == []


@pytest.mark.parametrize("more", [{"step_signal": "optimizer"}, {"step_signal": "forward", "was_outdone": True}])
def test_a_program_that_trains_is_not_judged_by_a_recording_that_ends_before_its_backward_pass(more):
    """In the middle of a step, or of a game, from which the program learns later."""
    with pytest.raises(CannotLook, match="ends before a backward pass"):
        find(facts_of(evaluating(), run=Run(torch="2.13.0", **more)))


def keeping(tensors: int) -> tuple[LiveSample, ...]:
    """A name whose graph grows by 12 nodes a step, and which holds that many tensors more each."""
    counts = {n: 1 + n * tensors for n in range(1, 5)}
    return tuple(LiveSample(n, (LiveHolder("kept", None, count, 12 * n, 4, count),)) for n, count in counts.items())


def test_graphs_that_are_kept_one_by_one_may_be_used_later():
    """Losses of several batches may be summed for one backward pass after the recording; retained-graph asks there."""
    assert find(facts_of(evaluating(4), live=keeping(tensors=1))) == []


def test_a_graph_that_goes_on_from_step_to_step_where_nothing_is_trained_is_used_by_nobody():
    """A sampler that starts each step from its own last result."""
    assert len(find(facts_of(evaluating(4), live=keeping(tensors=0)))) == 1


def test_a_teachers_pass_that_the_backward_pass_leaves_out_is_reported():
    facts = facts_of(training(used=12, unused=12))
    (found,) = find(facts)
    assert found.count == 12
    starts = facts.trace.events.start_ns[found.rows] // 1000
    assert set(starts % LENGTH) == {1 + 10 * k for k in range(12)}


@pytest.mark.parametrize(("unused", "reported"), [(0, 0), (9, 0), (10, 1)])
def test_in_training_a_few_unused_nodes_are_no_pass_of_a_model(unused, reported):
    assert len(find(facts_of(training(used=12, unused=unused)))) == reported


def test_in_training_a_small_share_of_unused_nodes_is_silent():
    assert find(facts_of(training(used=28, unused=12))) == []


def test_a_validation_between_two_training_steps_is_reported_by_its_share_of_all_nodes():
    events = training(steps=4, used=4)
    validation = [event for event in training(steps=1, used=4, unused=30) if event["name"] == "aten::linear"]
    moved = [{**event, "ts": event["ts"] + 4 * LENGTH, "args": {**event["args"], "Sequence number": 100 + k}}
             for k, event in enumerate(validation)]  # fmt: skip
    last = [step(4, 4 * LENGTH, LENGTH), *moved, *ending(4 * LENGTH + 500, 134), *backward(4600, range(130, 134))]
    (found,) = find(facts_of([*events, *last]))
    assert found.count == 6  # 30 in one of five steps


@pytest.mark.parametrize(("unused", "reported"), [(15, 0), (16, 1)])
def test_a_rare_validation_is_compared_with_the_step_that_it_comes_with(unused, reported):
    """A third of what that step makes, whatever the others do."""
    rare = training(steps=1, used=32, unused=unused)
    others = [{**event, "ts": event["ts"] + LENGTH, "args": _later(event)} for event in training(steps=4, used=32)]
    assert len(find(facts_of([*rare, *others]))) == reported


def _later(event: Json) -> Json:
    """Its arguments, with a sequence number after those of the first step and the steps counted on."""
    arguments = dict(event.get("args", {}))
    if "Sequence number" in arguments:
        arguments["Sequence number"] += 100
    return arguments


def test_a_forward_pass_whose_backward_was_not_recorded_any_more_is_silent():
    assert find(facts_of(training(steps=2, used=12, seen=1))) == []


SITES = (
    CallSite("eval.py", 50, "main", "evaluate(net)"),
    CallSite("eval.py", 20, "evaluate", "scores = net(x)"),
    CallSite("model.py", 8, "Net.forward", "return self.head(self.body(x))"),
    CallSite("model.py", 3, "Body.forward", "return torch.relu(self.lin(x))"),
    CallSite("eval.py", 21, "evaluate", "loss = criterion(scores, y)"),
)


def located(*chains: tuple[int, ...]) -> list[Json]:
    """A located step whose operators lie in these chains of lines, 12 operators each, then three measured ones."""
    events = [step(0, 0, LENGTH)]
    for n, chain in enumerate(chains):
        at = 1 + 300 * n
        events += [mark(site, at + depth, 200 - 2 * depth) for depth, site in enumerate(chain)]
        events += forward(at + 10, 12 * n)
    events += ending(900, 12 * len(chains))
    later = [{**event, "ts": event["ts"] + LENGTH} for event in evaluating()]
    return [*events, *later]


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
    first = [step(0, 0, LENGTH), mark(4, 1, 400), *forward(10, 500, 4), *ending(450, 504),
             *backward(600, range(500, 504))]  # fmt: skip
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


def test_without_operators_the_rule_does_not_look():
    assert missing_needs(facts_of([step(0, 0, 10)]), unused_autograd_graph.needs) == [Need.OPERATORS]


# Recordings made elsewhere


@pytest.mark.parametrize(
    "name",
    [
        "bert_small_h100.json.gz",
        "ddp_resnet_cpu_bound_a100.json.gz",
        "mlp_launch_bound_2080ti.json.gz",
        "qwen_prefill_h100.json.gz",
        "recsys_eager_a100.json.gz",
        "recsys_graphed_v100.json.gz",
        "resnet50_workers0_v100.pt.trace.json.gz",
        "resnet_healthy_v100.pt.trace.json.gz",
        "sam_amg_optimised_a100.json.gz",
        "vllm_graphs_mi300x.json.gz",
        "dlrm_128_ranks_sampled/sampled_rank-0.json.gz",
    ],
)
def test_recordings_that_train_or_have_no_graph_stay_quiet(corpus, name):
    assert find(read_facts(corpus / "kineto" / name)) == []


def test_a_forward_pass_alone_may_be_followed_by_a_backward_pass_that_was_not_recorded(corpus):
    with pytest.raises(CannotLook, match="one may have followed it"):
        find(read_facts(corpus / "kineto" / "part_batch_sweep_a100" / "batch_128.json"))


def test_a_whole_program_of_one_window_is_judged_with_less_confidence():
    events = [*forward(1, 0), *ending(500, 12)]
    with pytest.raises(CannotLook):
        find(facts_of(events))
    (found,) = find(facts_of(events, run=Run(torch="2.13.0")))
    assert found.confidence == 0.6


EVALUATION = Remark(EVALUATION_WITH_GRAD, CallSite("train.py", 20, "evaluate", "scores = model(x)"))


def test_an_evaluation_that_only_the_source_shows_is_low_at_its_line():
    facts = facts_of(training(), run=Run(remarks=(EVALUATION, Remark("another", EVALUATION.site))))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "unused-autograd-graph"]
    assert found.location is not None
    assert (found.location.file, found.location.line, found.location.function) == ("train.py", 20, "evaluate")
    assert (found.severity, found.confidence, found.saving) == (Severity.LOW, 0.6, None)
    assert "The recorded steps have none of it" in found.message


def test_an_evaluation_that_was_recorded_is_reported_once():
    located = [step(9, 9000, LENGTH), mark(0, 9001, 400), *forward(9002, 36), *ending(9500, 48)]
    facts = facts_of([*evaluating(), *located], run=Run(remarks=(EVALUATION,)), callsites=(EVALUATION.site,))
    (found,) = find(facts)
    assert found.severity is None
    assert found.location is not None
    assert found.location.line == 20
