"""Graphs that no backward pass uses, and graphs whose backward pass is only elsewhere."""

from __future__ import annotations

import pytest

from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Severity
from profkit.rules.base import CannotLook, Need, missing_needs
from profkit.rules.unused_autograd_graph import unused_autograd_graph
from profkit.run.directory import CallSite, LiveHolder, LiveSample, Remark, Run
from profkit.source.remark_kinds import EVALUATION_WITH_GRAD
from tests.rules.forward_passes import LENGTH, Json, backward, ending, evaluating, find, forward, training
from tests.traces import annotation, facts_of, mark, memory, op, rows_named, step


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
    events = [
        event
        for i in range(3)
        for event in (
            step(i, LENGTH * i, LENGTH),
            *(op("aten::linear", LENGTH * i + 10 * k, 9, sequence=5) for k in range(12)),
        )
    ]
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


@pytest.mark.parametrize(("steps", "status", "looks"), [(1, 1, False), (3, 1, True), (1, 0, True), (1, None, True)])
def test_a_program_that_failed_in_its_only_step_may_have_been_before_its_backward_pass(steps, status, looks):
    facts = facts_of(evaluating(steps), run=Run(torch="2.13.0", exit_status=status))
    if looks:
        assert len(find(facts)) == 1
    else:
        with pytest.raises(CannotLook, match="failed in its only recorded step"):
            find(facts)


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
    moved = [
        {**event, "ts": event["ts"] + 4 * LENGTH, "args": {**event["args"], "Sequence number": 100 + k}}
        for k, event in enumerate(validation)
    ]
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


def test_without_operators_the_rule_does_not_look():
    assert missing_needs(facts_of([step(0, 0, 10)]), unused_autograd_graph.needs) == [Need.OPERATORS]


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
    assert "The recorded steps do not include it" in found.message


def test_an_evaluation_that_was_recorded_is_reported_once():
    located = [step(9, 9000, LENGTH), mark(0, 9001, 400), *forward(9002, 36), *ending(9500, 48)]
    facts = facts_of([*evaluating(), *located], run=Run(remarks=(EVALUATION,)), callsites=(EVALUATION.site,))
    (found,) = find(facts)
    assert found.severity is None
    assert found.location is not None
    assert found.location.line == 20


@pytest.mark.parametrize(
    ("passes", "nodes", "kept_bytes", "reported"),
    [
        pytest.param(3, 4, 5_000_000, 1, id="a tenth of the peak"),
        pytest.param(3, 5, 5_000_000, 1, id="a tenth of the step, too"),
        pytest.param(3, 4, 2_000_000, 0, id="less memory"),
        pytest.param(1, 4, 5_000_000, 0, id="once a step"),
        pytest.param(2, 4, 5_000_000, 0, id="too few nodes"),
    ],
)
def test_short_passes_of_one_line_between_others_that_are_used_count_together(passes, nodes, kept_bytes, reported):
    """A loss of some nodes after each inner step, none of which a backward pass uses; eight nodes that one does."""
    events = []
    for i in range(3):
        at, number, used = LENGTH * i, 100 * i, []
        events += [step(i, at, LENGTH), memory(at, 40_000_000, 1)]
        for k in range(passes):
            begin = at + 1 + 130 * k
            if i == 0:
                events += [mark(0, begin - 0.5, 80), mark(1, begin + 79.8, 45)]
            events += forward(begin, number, 8)
            used += [*range(number, number + 8)]
            events += [memory(begin + 85, kept_bytes, 10 + k), memory(begin + 86, 1000, 20 + k)]
            events += forward(begin + 80, number + 8, nodes)
            number += 8 + nodes
        events += ending(at + 500, number)
        events += [event for k, n in enumerate(used) for event in backward(at + 510 + 10 * k, range(n, n + 1))]
        freed = [
            (1, 40_000_000),
            *((10 + k, kept_bytes) for k in range(passes)),
            *((20 + k, 1000) for k in range(passes)),
        ]
        events += [memory(at + 900 + n, -size, address) for n, (address, size) in enumerate(freed)]
    sites = (CallSite("meta.py", 5, "f", "loss = inner(w)"), CallSite("meta.py", 6, "f", "out.append(outer(w))"))
    found = find(facts_of(events, callsites=sites))
    assert len(found) == reported
    assert all("only those" in suspicion.fix and suspicion.location.line == 6 for suspicion in found)
    share, severity = (9, None) if nodes == 4 else (11, Severity.MEDIUM)
    told = [suspicion.message.partition("either, they are ")[2][:2].strip(".") for suspicion in found]
    assert (told, [suspicion.severity for suspicion in found]) == ([f"{share}"] * reported, [severity] * reported)
