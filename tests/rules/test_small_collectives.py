"""Gradients that are averaged in many small messages."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.derive.launch.matching import match
from profkit.patterns.averaging.exchanged import own_table
from profkit.rules.base import CannotLook, Suspicion
from profkit.rules.small_collectives import small_collectives
from profkit.savings.simulate import predict_saving
from tests.traces import annotation, facts_of, op, step

Json = dict[str, Any]
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
COPY = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
STARTS = ["", "", "", "", "True", "-1"]
TYPES = ["TensorList", "", "", "", "Scalar", "Scalar"]
MB = 1 << 20


def message(at: float, begin: float, duration: float, size_bytes: int | None) -> list[Json]:
    shape = [size_bytes // 4] if size_bytes is not None else None
    dims = [[shape], [], [], [], [], []] if shape else None
    ran = annotation("gloo:all_reduce", begin, duration, tid=9)
    if shape:
        ran["args"] |= {"Input Dims": [shape], "Input type": ["float"]}
    return [op("c10d::allreduce_", at, 1, dims=dims, types=TYPES, concrete=STARTS), ran]


def training_step(count: int, size_bytes: int | None, duration: float = 20, last: int | None = None) -> list[Json]:
    """20 µs forward, 10 of backward for each message, which a thread of the backend sends one after another from 30 µs
    on; then the gradients are copied back."""
    events = [op("aten::mm", 0, 19, dims=[[4, 4]], types=["float"])]
    for i in range(count):
        size = last if last is not None and i == count - 1 else size_bytes
        time = duration if size == size_bytes else duration / 2
        events += [op(NODE, 20 + 10 * i, 10), *message(25 + 10 * i, max(30 + duration * i, 27 + 10 * i), time, size)]
        events.append(op("aten::mul", 26 + 10 * i, 3.9))
    done = max(30 + duration * (count - 1) + (duration if last is None else duration / 2), 20 + 10 * count)
    events += [op(COPY, done + 1, 5), op("aten::copy_", done + 2, 3)]
    return [*events, annotation("Optimizer.step#SGD.step", done + 7, 5), op("aten::add_", done + 8, 3)]


def trained(one: list[Json], steps: int = 4) -> Any:
    length = max(event["ts"] + event["dur"] for event in one) + 1
    events = [{**event, "ts": event["ts"] + length * i} for i in range(steps) for event in one]
    return facts_of([*events, *(step(i, length * i, length) for i in range(steps))])


def find(facts: Any) -> list[Suspicion]:
    return list(small_collectives.check(facts))


def test_messages_of_one_small_size_are_told_with_the_latency_that_fewer_save():
    facts = trained(training_step(10, 1 << 12))
    (found,) = find(facts)
    # A message of 4 kB takes 20 µs, of which 1 part in 65 goes to its bytes; one bucket does for ten.
    assert found.evidence == {
        "messages_per_step": 10,
        "default_buckets": 1,
        "latency_ns": 19_692,
        "gradient_bytes": 10 << 12,
    }
    # The host is back from its work at 120 µs and waits until 230; nine latencies are more than that. The calls of
    # nine messages, 1 µs each, go too.
    length = 230 + 12 + 1
    assert predict_saving(facts, found.edit).fraction == pytest.approx((110 + 9) / length, abs=0.01)


def test_two_sizes_tell_latency_from_bandwidth():
    """A quarter of the bytes takes half of the time: 20 µs are 13.3 for the bytes and 6.7 of latency."""
    facts = trained(training_step(12, MB // 16, last=MB // 64))
    (found,) = find(facts)
    assert found.evidence["latency_ns"] == pytest.approx(6_667, abs=2)


def with_one_short_message(which: int) -> Any:
    """Ten messages of 20 µs, of which the rank is the last to send one: 5 µs are left of that."""
    events = training_step(10, 1 << 12)
    sent = [event for event in events if event["name"] == "gloo:all_reduce"][which]
    sent.update(ts=sent["ts"] + 15, dur=5)
    return trained(events)


def test_all_ranks_tell_what_messages_take_and_one_alone_takes_its_shortest_for_it():
    ranks = [with_one_short_message(3), with_one_short_message(6)]
    tables = [own_table(facts) for facts in ranks]
    launch = match(
        [
            structs.replace(table, identity=structs.replace(table.identity, rank=rank, world_size=2))
            for rank, table in enumerate(tables)
        ]
    )
    (alone,) = find(ranks[0])
    (together,) = find(Facts(ranks[0].trace, launch=launch))
    assert alone.evidence["latency_ns"] == 4_923
    # Of eight messages that took 20 µs and two that took 5, it is the mean.
    assert together.evidence["latency_ns"] == pytest.approx(17_000 * 64 / 65, abs=1)


@pytest.mark.parametrize(("count", "reported"), [(3, 1), (2, 0)])
def test_more_than_twice_the_default_buckets_are_too_many(count, reported):
    assert len(find(trained(training_step(count, 1 << 12)))) == reported


def test_default_buckets_of_a_large_model_are_silent():
    assert find(trained(training_step(4, 24 * MB))) == []


def test_messages_hidden_behind_the_backward_pass_cost_no_more_than_their_calls():
    """The waits that are left are those for the last message."""
    facts = trained(training_step(10, 1 << 12, duration=1))
    assert all(predict_saving(facts, found.edit).fraction < 10 / 120 for found in find(facts))


@pytest.mark.parametrize(("count", "told"), [(3, True), (2, False)])
def test_messages_outside_of_the_storing_of_gradients_do_not_count_and_many_are_told(count, told):
    other = {NODE: "autograd::engine::evaluate_function: MmBackward0"}
    step_of_it = [{**event, "name": other.get(event["name"], event["name"])} for event in training_step(count, 1 << 12)]
    facts = trained(step_of_it)
    if told:
        with pytest.raises(CannotLook, match="of 3 all-reduces a step none is started by the storing of a gradient"):
            find(facts)
    else:
        assert find(facts) == []


def test_many_messages_without_a_backward_pass_are_of_no_gradients():
    assert find(trained([event for event in training_step(10, 1 << 12) if event["name"] != NODE])) == []


def test_without_sizes_it_cannot_look():
    with pytest.raises(CannotLook, match="how large"):
        find(trained(training_step(10, None)))


def test_without_shapes_it_cannot_look():
    bare = [{**event, "args": {}} for event in training_step(10, 1 << 12)]
    with pytest.raises(CannotLook, match=r"how large the messages are \(record_shapes=True\)"):
        find(trained(bare))
