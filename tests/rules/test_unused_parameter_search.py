"""DistributedDataParallel's search for parameters without a gradient, where all have one."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.unused_parameter_search import unused_parameter_search
from profkit.run.directory import CallSite
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, mark, op, rows_named, step

Json = dict[str, Any]
SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"
STORES = "torch::autograd::AccumulateGrad"
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def training_step(at: float, stored: int = 3, parameters: int | None = 3, searches: bool = True) -> list[Json]:
    """100 µs: the forward pass in 20, the search in 5, 10 for each gradient, of which the last asks for the average of
    the bucket and of the map; the bucket is copied back from 62 to 70, the map's average ends at 80."""
    events = [annotation("DistributedDataParallel.forward", at, 20), op("aten::mm", at + 1, 18)]
    events += [op(SEARCH, at + 21, 5)] if searches else []
    for i in range(stored):
        events.append(op(STORES, at + 30 + 10 * i, 10))
    last = at + 30 + 10 * (stored - 1)
    events.append(op("c10d::allreduce_", last + 2, 2, dims="[[[4096]],[]]"))
    events.append(annotation("gloo:all_reduce", last + 4, 8, tid=9))
    if parameters is not None:
        events.append(op("c10d::allreduce_", last + 6, 2, dims=f"[[[{parameters}]],[]]"))
        events.append(annotation("gloo:all_reduce", at + 65, 15, tid=9))
    return [*events, op(COPY, at + 62, 8), annotation("Optimizer.step#SGD.step", at + 90, 10)]


def trained(*steps: list[Json], **more: Any) -> Any:
    events = [{**event, "ts": event["ts"] + 100 * i} for i, one in enumerate(steps) for event in one]
    return facts_of([*events, *(step(i, 100 * i, 100) for i in range(len(steps)))], **more)


def find(facts: Any) -> list[Suspicion]:
    return list(unused_parameter_search.check(facts))


def test_a_search_that_finds_nothing_loses_its_time_its_message_and_the_wait_for_that():
    facts = trained(*[training_step(0)] * 4)
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, SEARCH)
    assert found.evidence == {"parameters": 3, "passes": 4}
    # 5 µs of the search, 2 for asking, 10 of waiting after the gradients are copied back.
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.17, abs=1e-3)


def test_a_parameter_that_is_not_used_in_one_step_is_what_the_search_is_for():
    assert find(trained(*[training_step(0)] * 3, training_step(0, stored=2))) == []


def test_a_parameter_that_is_never_used_is_what_the_search_is_for():
    assert find(trained(*[training_step(0, stored=2)] * 4)) == []


def test_more_gradients_than_parameters_belong_to_others_too():
    assert find(trained(*[training_step(0, stored=4)] * 4)) == []


def test_without_a_search_nothing_is_said():
    assert find(trained(*[training_step(0, parameters=None, searches=False)] * 4)) == []


@pytest.mark.parametrize(("searching", "reported"), [(2, 1), (1, 0)])
def test_half_of_the_steps_have_to_search(searching, reported):
    """A static graph is searched once."""
    quiet = training_step(0, parameters=None, searches=False)
    assert len(find(trained(*[training_step(0)] * searching, *[quiet] * (4 - searching)))) == reported


def test_without_the_extra_message_it_cannot_look():
    """As in a recording of a program that only evaluates under a model that searches."""
    with pytest.raises(CannotLook, match="how many parameters"):
        find(trained(*[training_step(0, parameters=None)] * 4))


def test_without_shapes_it_does_not_meet_its_needs():
    bare = [{**event, "args": {}} for event in training_step(0)]
    assert Need.SHAPES in missing_needs(trained(*[bare] * 4), unused_parameter_search.needs)


def test_the_line_is_that_of_the_forward_pass():
    sites = (CallSite("train.py", 7, "train"), CallSite("train.py", 8, "train"))
    located = [*training_step(0), mark(0, 0, 28), mark(1, 29, 60)]
    (found,) = find(trained(located, *[training_step(0)] * 3, callsites=sites))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 7)
