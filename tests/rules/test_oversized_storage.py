"""Names whose views keep much more storage than they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from profkit.derive.facts import Facts
from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.growing_live_tensors import growing_live_tensors
from profkit.rules.oversized_storage import oversized_storage
from profkit.run.directory import CallSite, LiveHolder, LiveSample
from tests.traces import facts_of, mark, memory, op, step

Json = dict[str, Any]
APPEND = CallSite("train.py", 9, "main", "kept.append(features[:1])")
MODEL = CallSite("model.py", 30, "forward", "return self.head(x)")
SIZE = 400_000


def find(facts: Facts) -> list[Suspicion]:
    return list(oversized_storage.check(facts))


def steps(grows_by: int = SIZE, count: int = 5, working: int = 1000) -> list[Json]:
    """The first step is located; each leaves so many bytes for good."""
    events = []
    for i in range(count):
        at = 100 * i
        marks = [mark(1, at + 1, 20)] if i == 0 else []
        kept = [memory(at + 5, grows_by, 1000 + i)] if grows_by else []
        events += [
            step(i, at, 100),
            *marks,
            op("aten::mm", at + 2, 15),
            *kept,
            memory(at + 6, working, 1),
            memory(at + 12, -working, 1),
        ]
    return events


def views(
    used: int | None,
    *,
    tensors: Sequence[int] = (1, 2, 3, 4, 5),
    storages: Sequence[int] | None = None,
    graphs: int = 0,
    is_bounded: bool = False,
) -> list[LiveHolder]:
    """One view of ``used`` bytes for each tensor; one storage for each, or so many as given."""
    shown = [None if used is None else used * n for n in tensors]
    return [
        LiveHolder("kept", APPEND, graphs * n, graphs * n, SIZE * storage, n, seen, is_bounded)
        for n, storage, seen in zip(tensors, storages or tensors, shown, strict=True)
    ]


def living(holders: list[LiveHolder], events: list[Json] | None = None) -> Facts:
    samples = tuple(LiveSample(i, (holder,)) for i, holder in enumerate(holders))
    return facts_of(events or steps(), live=samples, callsites=(APPEND, MODEL))


def test_a_row_of_each_batch_keeps_the_batch():
    (found,) = find(living(views(4000)))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 9)
    assert [place.line for place in found.also] == [30]
    assert (found.size_bytes, found.grows, found.count) == (SIZE - 4000, True, 1)
    assert found.evidence == {"storage_bytes_per_step": SIZE, "used_bytes_per_step": 4000}
    assert "1 tensor more each step, 4.00 kB in all, and with it a storage of 400 kB" in found.message
    assert "`x.clone()`" in found.fix


def test_several_views_a_step_keep_storages():
    (found,) = find(living(views(4000, tensors=(2, 4, 6, 8, 10)), steps(grows_by=2 * SIZE)))
    assert "2 tensors more each step, 8.00 kB in all, and with them storages of 800 kB" in found.message


PART = CallSite("train.py", 5, "Slate.of", "anchors=scores[:, :4]")
NAMED = CallSite("train.py", 9, "fit", "kept.append(part)")
OTHER = CallSite("train.py", 7, "Slate.of", "items=scores[:, 4:9]")


def taking(*parts: tuple[int, str, list[int]], append: CallSite = NAMED) -> Facts:
    """Of each step a view on 400 kB is kept, at the ninth line; ``parts`` are taken at these sites of such shapes."""
    events = steps()
    for step_number in range(5):
        for i, (site, operator, shape) in enumerate(parts):
            at = 100 * step_number + 30 + 10 * i
            events += [mark(2 + site, at, 5)] if step_number == 0 else []
            events.append(op(f"aten::{operator}", at + 1, 2, dims=[shape], types=["float"]))
    samples = tuple(LiveSample(i, (structs.replace(holder, site=append),)) for i, holder in enumerate(views(4000)))
    return facts_of(events, live=samples, callsites=(append, MODEL, PART, OTHER))


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (((0, "slice", [100, 1000]),), 5),
        (((0, "select", [50_001]),), 5),
        (((0, "slice", [50_000]),), 9),
        (((0, "slice", [100_001]),), 9),
        (((0, "add", [100, 1000]),), 9),
        (((0, "slice", [100, 1000]), (1, "slice", [1000, 100])), 9),
        (((0, "slice", [100, 1000]), (1, "slice", [9])), 5),
    ],
)
def test_the_line_is_the_one_that_takes_the_part_if_only_one_does(parts: Any, line: int):
    """Of a tensor that is more than half of what each step keeps, and no larger: of 400,000 bytes."""
    (found,) = find(taking(*parts))
    assert found.location is not None
    assert found.location.line == line
    assert {place.line for place in found.also} >= ({9} - {line})


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("kept.append(middle(x))", 9),
        ("kept.append(Slate(x[:4]))", 9),
        ("heapq.heappush(kept, (1, x[:4]))", 9),
        ("kept.append(part)", 5),
        ("heapq.heappush(kept, entry)", 5),
        ("kept[step] = middle(x)", 9),
        ("kept[step] = part", 5),
        ("kept.append(", 5),
        ("kept.flush()", 5),
    ],
)
def test_a_line_that_makes_what_it_keeps_can_copy_it_too(source: str, line: int):
    """What has a name already may be more than the tensor: then the copy belongs where the part is taken."""
    append = CallSite("train.py", 9, "fit", source)
    (found,) = find(taking((0, "slice", [100, 1000]), append=append))
    assert found.location is not None
    assert found.location.line == line
    assert 14 - line in {place.line for place in found.also}


def test_what_a_view_wastes_is_no_growth_of_live_tensors():
    assert list(growing_live_tensors.check(living(views(4000)))) == []


def test_the_saving_is_no_more_than_the_allocator_sees():
    (found,) = find(living(views(4000), steps(SIZE * 3 // 4)))
    assert found.size_bytes == SIZE * 3 // 4 - 4000


def test_a_container_with_a_maximum_wastes_its_share_of_the_peak():
    (found,) = find(living(views(0, is_bounded=True)))
    assert not found.grows
    assert found.peak_fraction == pytest.approx(5 * SIZE / (5 * SIZE + 1000))


@pytest.mark.parametrize(("used", "count"), [(SIZE // 2, 0), (SIZE // 2 - 1, 1)])
def test_a_view_of_half_of_the_storage_is_no_fault(used, count):
    assert len(find(living(views(used)))) == count


@pytest.mark.parametrize(("working", "count"), [(298_000_000, 1), (302_000_000, 0)])
def test_a_thousandth_of_the_peak_matters(working, count):
    assert len(find(living(views(100_000), steps(working=working)))) == count


def test_views_of_one_storage_cost_nothing_more():
    """Slices of a data set."""
    assert find(living(views(4000, storages=(1, 1, 1, 1, 1)))) == []


def test_storages_that_were_allocated_before_are_not_kept_by_the_views():
    """Slices of other tensors that live anyway: the census sees storages, the allocator no growth."""
    assert find(living(views(4000), steps(0))) == []


def test_tensors_with_a_graph_are_left_to_their_own_rule():
    assert find(living(views(4000, graphs=1))) == []


def test_a_full_cache_of_views_does_not_grow():
    assert find(living(views(4000, tensors=(3, 4, 5, 5, 5)))) == []


def test_a_census_that_does_not_tell_what_is_used_shows_no_waste():
    assert find(living(views(None))) == []


def test_three_samples_are_too_few_to_tell():
    facts = living(views(4000)[:3], steps(count=3))
    assert missing_needs(facts, oversized_storage.needs) == [Need.GROWTH]


def test_both_signals_are_needed():
    assert missing_needs(facts_of(steps()), oversized_storage.needs) == [Need.LIVE]
    lone = facts_of([op("aten::mm", 1, 9)], live=living(views(4000)).live)
    assert missing_needs(lone, oversized_storage.needs) == [Need.MEMORY]
