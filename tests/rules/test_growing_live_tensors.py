"""Names that hold more tensors each step while memory grows, and names whose growth is unsteady, small, or bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from profkit.derive.facts import Facts
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.growing_live_tensors import growing_live_tensors
from profkit.run.directory import CallSite, LiveHolder, LiveSample, SharedHold
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
APPEND = CallSite("train.py", 9, "main", "outputs.append(model(x))")
MODEL = CallSite("model.py", 30, "forward", "return self.head(x)")
SIZE = 200_000


def find(facts: Facts) -> list[Suspicion]:
    return list(growing_live_tensors.check(facts))


def steps(grows_by: Sequence[int], working: int = 1000) -> list[Json]:
    """Steps that keep ``grows_by`` bytes each and free ``working`` bytes. The first step is located."""
    events = []
    for i, size in enumerate(grows_by):
        at = 100 * i
        marks = [mark(1, at + 1, 20)] if i == 0 else []
        kept = [memory(at + 5, size, 1000 + i)] if size else []
        events += [
            step(i, at, 100),
            *marks,
            op("aten::mm", at + 2, 15),
            *kept,
            memory(at + 6, working, 1),
            memory(at + 12, -working, 1),
        ]
    return events


def held(
    path: str = "outputs",
    *,
    tensors: Sequence[int] = (1, 2, 3, 4, 5),
    size: int = SIZE,
    graphs: int = 0,
    used: float = 1,
    is_bounded: bool = False,
    site: CallSite | None = APPEND,
) -> list[LiveHolder]:
    return [
        LiveHolder(path, site, graphs * n, graphs * n, n * size, n, int(n * size * used), is_bounded) for n in tensors
    ]


def living(*names: list[LiveHolder], events: list[Json] | None = None, after: Sequence[int] = range(5)) -> Facts:
    """``after`` are the numbers of the steps after which the live tensors were sampled."""
    samples = tuple(map(LiveSample, after, zip(*names, strict=True)))
    return facts_of(events or steps([SIZE] * 5), live=samples, callsites=(APPEND, MODEL))


def test_a_growing_list_is_reported_with_the_bytes_added_per_step():
    (found,) = find(living(held()))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 9)
    assert [place.line for place in found.also] == [30]
    assert (found.size_bytes, found.grows, found.count) == (SIZE, True, 1)
    assert found.evidence == {"tensors_per_step": 1, "bytes_per_step": SIZE}
    assert "`outputs` keeps 1 tensor more each step" in found.message
    assert "200 kB a step" in found.message


def test_of_several_things_of_one_name_the_largest_counts_in_whatever_order():
    """Each hook that a line adds captures a list of its own, the newest of which holds the least."""
    newest = held("captured", tensors=(1, 1, 1, 1, 1))
    for names in ((held("captured"), newest), (newest, held("captured"))):
        (found,) = find(living(*names))
        assert found.evidence == {"tensors_per_step": 1, "bytes_per_step": SIZE}
    assert find(living(newest, newest)) == []


@pytest.mark.parametrize(
    ("common", "known"), [(1, {"outputs": SIZE}), (0.4, {"outputs": SIZE // 2, "kept": SIZE // 2})]
)
def test_two_names_that_hold_the_same_tensors_are_one_finding(common, known):
    """``common`` is the share of the added bytes that both names hold."""
    other = CallSite("train.py", 10, "main", "kept.append(y)")
    outputs, kept = (
        [msgspec.structs.replace(holder, shared=(SharedHold(mate, 0, int(common * holder.bytes)),)) for holder in held]
        for held, mate in ((held(), "kept"), (held("kept", site=other), "outputs"))
    )
    found = find(living(outputs, kept))
    assert {one.message.split("`")[1]: one.size_bytes for one in found} == known
    is_one = len(known) == 1
    assert ("`kept` holds the same tensors: nothing is freed until all of them let go." in found[0].message) is is_one
    assert ([place.line for place in found[0].also] == [10, 30]) is is_one


def test_growth_is_reported_per_step_when_some_steps_have_no_sample():
    """The third and fourth samples come two steps after the one before."""
    (found,) = find(living(held(tensors=(1, 2, 4, 6)), after=(0, 1, 3, 5)))
    assert (found.size_bytes, found.count) == (SIZE, 1)
    assert found.evidence == {"tensors_per_step": 1, "bytes_per_step": SIZE}


def test_growth_that_is_even_per_sample_but_not_per_step_is_silent():
    """Four tensors are added in one step, and then four over the next four steps."""
    assert find(living(held(tensors=(4, 8, 12, 16)), after=(0, 1, 5, 6))) == []


def test_growing_names_share_the_growth_that_the_allocator_sees():
    other = CallSite("train.py", 10, "main", "again.append(outputs[-1])")
    found = find(living(held(), held("again", site=other)))
    assert [suspicion.size_bytes for suspicion in found] == [SIZE // 2] * 2


def test_names_that_grow_on_the_same_line_are_one_finding():
    assert len(find(living(held(), held("self.outputs")))) == 1


def test_growth_of_which_the_allocator_sees_less_than_half_is_silent():
    """Views of a data set and NumPy arrays grow without allocations."""
    assert find(living(held(), events=steps([0] * 5))) == []
    assert find(living(held(), events=steps([SIZE // 2 - 1] * 5))) == []
    assert len(find(living(held(), events=steps([SIZE // 2] * 5)))) == 1


def test_memory_that_falls_again_is_silent():
    assert find(living(held(), events=steps([SIZE, SIZE, SIZE, 0, 2 * SIZE]))) == []


@pytest.mark.parametrize(
    "tensors",
    [
        (5, 5, 5, 5, 5),
        (1, 2, 3, 4, 4),
        (1, 2, 3, 1, 2),
        (1, 9, 10, 11, 12),
    ],
    ids=["a cache filled before", "a cache that is full", "emptied now and then", "filled at the start"],
)
def test_names_that_do_not_grow_steadily_are_silent(tensors):
    assert find(living(held(tensors=tensors))) == []


@pytest.mark.parametrize(("tensors", "reported"), [((1, 1, 2, 3, 4), True), ((1, 1, 1, 2, 3), False)])
def test_late_growth_is_reported_from_four_growing_samples_on(tensors, reported):
    assert bool(find(living(held(tensors=tensors)))) is reported


def test_a_single_tensor_of_rising_size_is_silent():
    lengths = [LiveHolder("batch", APPEND, 0, 0, SIZE * n, 1) for n in range(1, 6)]
    assert find(living(lengths)) == []


def test_outputs_of_varying_size_are_reported():
    sizes = [0, 1, 5, 6, 9, 10]
    outputs = [LiveHolder("outputs", APPEND, 0, 0, SIZE * size, n) for n, size in enumerate(sizes) if n]
    assert len(find(living(outputs))) == 1


def test_without_known_use_all_held_bytes_count_as_used():
    outputs = [LiveHolder("outputs", APPEND, 0, 0, SIZE * n, n) for n in range(1, 6)]
    assert len(find(living(outputs))) == 1


def test_tensors_with_a_graph_are_silent():
    assert find(living(held(graphs=1))) == []


def test_views_that_use_less_than_half_of_what_they_keep_are_silent():
    assert find(living(held(used=0.49))) == []
    assert len(find(living(held(used=0.5)))) == 1


def test_a_name_that_is_emptied_or_has_a_maximum_is_silent():
    assert find(living(held(is_bounded=True))) == []


@pytest.mark.parametrize(("size", "count"), [(99_999, 0), (100_000, 1)])
def test_growth_below_100_kilobytes_a_step_is_silent(size, count):
    assert len(find(living(held(size=size), events=steps([size] * 5)))) == count


@pytest.mark.parametrize(("working", "count"), [(200_000_000, 0), (198_000_000, 1)])
def test_growth_below_a_thousandth_of_the_peak_is_silent(working, count):
    assert len(find(living(held(), events=steps([SIZE] * 5, working)))) == count


def test_three_samples_are_not_enough():
    facts = living(*[held(tensors=(1, 2, 3))], events=steps([SIZE] * 3))
    assert missing_needs(facts, growing_live_tensors.needs) == [Need.GROWTH]


def test_memory_events_and_live_samples_are_both_needed():
    assert missing_needs(facts_of(steps([SIZE] * 5)), growing_live_tensors.needs) == [Need.LIVE]
    lone = facts_of([op("aten::mm", 1, 9)], live=living(held()).live)
    assert missing_needs(lone, growing_live_tensors.needs) == [Need.MEMORY]


@pytest.mark.parametrize(
    ("path", "line"), [("head.scores", 30), ("self.head.scores", 30), ("metric.scores", None), ("x_head.scores", None)]
)
def test_where_no_line_is_known_the_one_that_mentions_the_name_leads(path, line):
    """The located step runs ``return self.head(x)``, which allocates what stays."""
    (found,) = find(living(held(path, site=None)))
    assert (found.location and found.location.line) == line
    assert [place.line for place in found.places.all()] == [30]


def test_of_several_lines_that_mention_the_name_the_one_that_allocates_leads():
    sites = (CallSite("train.py", 8, "main", "metric.reset()"), CallSite("train.py", 9, "main", "value = metric(x)"))
    events = [*steps([SIZE] * 5), mark(0, 30, 5)]
    samples = tuple(map(LiveSample, range(5), zip(held("metric.scores", site=None), strict=True)))
    (found,) = find(facts_of(events, live=samples, callsites=sites))
    assert found.location is not None
    assert found.location.line == 9
