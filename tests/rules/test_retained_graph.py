"""Names whose autograd graph grows from step to step, and names that only look like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.derive.facts import Facts
from profkit.rules.base import Need, Severity, Suspicion, missing_needs, reason_for
from profkit.rules.retained_graph import retained_graph
from profkit.run.directory import CallSite, LiveHolder, LiveSample, Run, SharedHold
from tests.traces import annotation, facts_of, mark, memory, op, step

Json = dict[str, Any]
APPEND = CallSite("train.py", 9, "main", "losses.append(loss)")
SUM = CallSite("train.py", 12, "main", "total += loss")
STATE = CallSite("train.py", 7, "main", "out, state = rnn(x, state)")
Series = Sequence[tuple[int, int]]
"""Nodes and tensors with a graph, at the end of each step."""


def find(facts: Facts) -> list[Suspicion]:
    return list(retained_graph.check(facts))


def steps(count: int = 5) -> list[Json]:
    return [event for i in range(count) for event in (step(i, 100 * i, 100), op("aten::mm", 100 * i + 1, 9))]


def training() -> list[Json]:
    return [*steps(), annotation("Optimizer.step#SGD.step", 50, 9)]


def held(path: str, site: CallSite | None, series: Series, bytes_each: int = 0) -> list[LiveHolder | None]:
    return [
        LiveHolder(path, site, tensors, nodes, bytes=bytes_each * nodes, tensors=tensors) if nodes else None
        for nodes, tensors in series
    ]


def living(
    *holders: list[LiveHolder | None], events: list[Json] | None = None, after: Sequence[int] = range(5)
) -> Facts:
    """``after`` are the numbers of the steps at whose ends the names were looked at."""
    samples = tuple(
        LiveSample(i, tuple(holder for holder in column if holder is not None))
        for i, column in zip(after, zip(*holders, strict=True), strict=False)
    )
    return facts_of(events or steps(), live=samples)


LIST = [(7 * n, n) for n in range(1, 6)]


def test_a_list_of_losses_keeps_one_graph_more_each_step():
    (found,) = find(living(held("losses", APPEND, LIST, bytes_each=400)))
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("train.py", 9)
    assert found.grows
    assert found.count == 1
    assert found.size_bytes == 3500
    assert found.evidence == {"nodes_per_step": 7, "nodes": 35, "tensors_per_step": 1}
    assert "`losses` keeps 1 tensor more with an autograd graph each step" in found.message
    assert "`x.detach()`" in found.fix


def anew(*series: LiveHolder | None) -> list[LiveHolder | None]:
    return [one and replace(one, begins_anew=True) for one in series]


def test_a_list_that_begins_anew_never_fills_memory_and_is_told_by_what_an_epoch_keeps():
    (found,) = find(living(anew(*held("losses", APPEND, LIST, bytes_each=400))))
    (other,) = find(living(held("losses", APPEND, LIST, bytes_each=400)))
    assert (found.is_bounded, found.severity) == (True, Severity.LOW)
    assert (other.is_bounded, other.severity) == (False, None)
    assert "after 1,000 steps that would be 6.30 MB" in found.message
    assert "begins anew" not in other.message


def test_a_list_that_keeps_activations_may_fill_memory_before_it_begins_anew():
    events = [memory(100 * i + 50, 10_000, 10_000 * (i + 1)) for i in range(5)]
    (found,) = find(living(anew(*held("losses", APPEND, LIST)), events=[*steps(), *events]))
    assert (found.is_bounded, found.severity) == (True, Severity.HIGH)


def test_growth_is_told_by_the_step_where_not_each_was_looked_at():
    """Seven nodes a step, with two steps between the last samples."""
    series = [(7 * n, n) for n in (1, 2, 4, 6)]
    (found,) = find(living(held("losses", APPEND, series), after=(0, 1, 3, 5)))
    assert found.evidence == {"nodes_per_step": 7, "nodes": 42, "tensors_per_step": 1}


def test_a_list_that_is_empty_at_first_counts_from_nothing():
    assert len(find(living(held("losses", APPEND, [(0, 0), (7, 1), (14, 2), (21, 3), (28, 4)])))) == 1


def test_a_running_sum_is_a_longer_graph_behind_one_tensor():
    (found,) = find(living(held("total", SUM, [(8 * n, 1) for n in range(1, 6)])))
    assert "`total` keeps a longer autograd graph each step" in found.message
    assert "total += x.detach()" in found.fix


@pytest.mark.parametrize("source", ["total = total + loss", "total = loss + total", "self.total = self.total + loss"])
def test_a_sum_may_be_spelt_out(source):
    path = "self.total" if "self" in source else "total"
    site = CallSite("train.py", 12, "main", source)
    (found,) = find(living(held(path, site, [(8 * n, 1) for n in range(1, 6)])))
    assert f"`{path} += x.detach()`" in found.fix


@pytest.mark.parametrize(
    "source", ["subtotal += total", "mean = total + loss", "total = step(total + loss)", "total *= 2"]
)
def test_what_is_computed_anew_is_no_sum(source):
    """It carries its own graph on, or another name's."""
    site = CallSite("train.py", 12, "main", source)
    (found,) = find(living(held("total", site, [(8 * n, 1) for n in range(1, 6)]), events=training()))
    assert "`total = total.detach()` before the next step" in found.fix


def test_of_a_hidden_state_and_what_is_computed_from_it_the_state_is_named():
    state = held("state", STATE, [(10 * n, 1) for n in range(1, 6)])
    loss = held("loss", None, [(10 * n + 6, 1) for n in range(1, 6)])
    (found,) = find(living(loss, state, events=training()))
    assert "`state`" in found.message
    assert "state.detach()" in found.fix
    (found,) = find(living(loss, state))
    assert "`state`" in found.message
    assert "inference_mode" in found.fix, "where nothing is trained"


def test_a_state_of_two_tensors_is_cut_one_by_one():
    (found,) = find(living(held("state", STATE, [(10 * n, 2) for n in range(1, 6)]), events=training()))
    assert "`state = tuple(t.detach() for t in state)`" in found.fix


def test_of_two_results_of_one_line_the_one_that_it_reads_again_is_named():
    """An output hangs on one end of the graph, a state of two tensors on both: the smaller one is not the cause."""
    out = held("out", STATE, [(5 * n, 1) for n in range(1, 6)])
    state = held("state", STATE, [(5 * n + 2, 2) for n in range(1, 6)])
    (found,) = find(living(out, state))
    assert "`state`" in found.message


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("out, state = rnn(x, state)", "state"),
        ("out, state = rnn(x, self.state)", "state"),
        ("out, state = rnn(x, 'state')", "out"),
        ("out, state = rnn(x, last_state)", "out"),
        ("out, state = rnn(x)  # state", "out"),
    ],
)
def test_a_state_is_read_where_the_tree_of_its_line_holds_it_twice(source, named):
    site = CallSite("train.py", 7, "main", source)
    out = held("out", site, [(5 * n, 1) for n in range(1, 6)])
    state = held("state", site, [(5 * n + 2, 2) for n in range(1, 6)])
    (found,) = find(living(out, state))
    assert f"`{named}`" in found.message


def test_what_is_computed_from_a_growing_list_is_not_named_beside_it():
    mean = held(
        "mean",
        CallSite("train.py", 10, "main", "mean = torch.stack(losses).mean()"),
        [(7 * n + 2, 1) for n in range(1, 6)],
    )
    (found,) = find(living(mean, held("losses", APPEND, LIST)))
    assert "`losses`" in found.message


def test_two_lists_are_two_findings_and_one_line_is_one():
    other = CallSite("train.py", 10, "main", "scores.append(score)")
    facts = living(held("losses", APPEND, LIST), held("scores", other, LIST), held("self.losses", APPEND, LIST))
    assert [found.location.line for found in find(facts) if found.location] == [9, 10]


def sharing(path: str, site: CallSite, series: Series, other: str, shared: Sequence[int]) -> list[LiveHolder | None]:
    return [
        LiveHolder(path, site, tensors, nodes, bytes=4, tensors=tensors, shared=(SharedHold(other, both, 0),))
        for (nodes, tensors), both in zip(series, shared, strict=True)
    ]


LONGER = [(8 * n, 1) for n in range(1, 6)]


def test_a_list_and_a_sum_of_the_same_losses_are_one_finding():
    history = sharing("history", APPEND, LIST, "total", [7 * n for n in range(1, 6)])
    total = sharing("total", SUM, LONGER, "history", [7 * n for n in range(1, 6)])
    (found,) = find(living(history, total))
    assert found.message == (
        "Memory grows by 4.00 kB a step in autograd nodes. `total` keeps a longer autograd graph each step (8 backward "
        "nodes a step, 40 by now). The same graphs hang on `history`: nothing is freed until all of them let go."
    )
    assert [found.location.line, *(place.line for place in found.also)] == [12, 9]
    assert "`total += x.detach()`" in found.fix
    assert "into `history`" in found.fix


@pytest.mark.parametrize(
    ("shared", "findings"), [([3, 3, 3, 3, 3], 2), ([3, 6, 9, 12, 15], 2), ([4, 8, 12, 16, 20], 1)]
)
def test_graphs_that_share_the_model_s_leaves_or_little_more_are_two_findings(shared, findings):
    """Seven and eight nodes are added a step: of the smaller graph's, half are 3.5."""
    history = sharing("history", APPEND, LIST, "total", shared)
    total = sharing("total", SUM, LONGER, "history", shared)
    assert len(find(living(history, total))) == findings


def test_two_graphs_share_memory_s_growth():
    """8,000 bytes a step, by nodes; a node takes 500 at least."""
    events = [event for i in range(5) for event in (step(i, 100 * i, 100), memory(100 * i + 5, 8_000, 1000 + i))]
    history = held("history", APPEND, [(5 * n, n) for n in range(1, 6)])
    total = held("total", SUM, [(15 * n, 1) for n in range(1, 6)])
    found = find(living(history, total, events=events))
    assert {one.message.split("`")[1]: one.size_bytes for one in found} == {"history": 2_500, "total": 7_500}


@pytest.mark.parametrize(
    "series",
    [
        [(900, 50)] * 5,
        [(7, 1), (14, 2), (21, 3), (28, 4), (28, 4)],
        [(7, 1), (14, 2), (7, 1), (14, 2), (21, 3)],
        [(40, 1), (41, 1), (90, 1), (95, 1), (200, 1)],
        [(35, 5), (28, 4), (21, 3), (14, 2), (7, 1)],
    ],
    ids=["constant", "full at last", "emptied now and then", "longer sequences by chance", "shrinking"],
)
def test_graphs_that_do_not_grow_steadily_are_silent(series):
    assert find(living(held("cache", APPEND, series))) == []


def test_tensors_without_a_graph_may_grow():
    growing = [LiveHolder("outputs", APPEND, 0, 0, bytes=100 * n, tensors=n) for n in range(1, 6)]
    assert find(living(growing)) == []


def test_memory_grows_as_the_allocator_says_and_its_lines_are_named():
    """Each step leaves 4096 bytes for good, which line 30 allocates; what lines 31 and 32 allocate is freed in this
    step or in the next."""
    sites = (APPEND, *(CallSite("model.py", line, "forward") for line in (30, 31, 32)))
    events = []
    for i in range(5):
        at = 100 * i
        lines = [mark(1, at + 1, 18), mark(2, at + 20, 18), mark(3, at + 40, 18)] if i == 0 else []
        events += [
            step(i, at, 100),
            *lines,
            op("aten::mm", at + 2, 9),
            op("aten::relu", at + 21, 9),
            op("aten::add", at + 41, 9),
            memory(at + 5, 4096, 1000 + i),
            memory(at + 22, 512, 1),
            memory(at + 32, -512, 1),
            memory(at + 42, 8192, 100 + i),
        ]
        events += [memory(at + 45, -8192, 99 + i)] if i else []
    samples = tuple(LiveSample(n - 1, (LiveHolder("losses", APPEND, n, 7 * n, 4 * n, n),)) for n in range(1, 6))
    (found,) = find(facts_of(events, live=samples, callsites=sites))
    assert found.size_bytes == 4096
    assert "Memory grows each step: tensors by 4.10 kB, autograd nodes by 3.50 kB." in found.message
    assert [place.line for place in found.also] == [30]


@pytest.mark.parametrize(("bytes_each", "size"), [(4, 3500), (500, 3500), (501, 3507)])
def test_the_growth_is_no_less_than_the_nodes_take(bytes_each, size):
    (found,) = find(living(held("losses", APPEND, LIST, bytes_each=bytes_each)))
    assert found.size_bytes == size
    assert ("Memory grows" in found.message) == (size > 0)


def test_three_samples_are_too_few_to_tell():
    facts = facts_of(steps(3), live=living(held("losses", APPEND, LIST)).live[:3])
    assert missing_needs(facts, retained_graph.needs) == [Need.GROWTH]


def test_without_a_census_the_rule_does_not_look():
    assert missing_needs(facts_of(steps()), retained_graph.needs) == [Need.LIVE]


def test_a_program_whose_steps_were_not_found_is_told_how_to_be_looked_at():
    lone = facts_of([op("aten::mm", 1, 9)], run=Run(torch="2.13.0"))
    assert missing_needs(lone, retained_graph.needs) == [Need.LIVE]
    assert "step()" in reason_for(lone, Need.LIVE)
    assert reason_for(facts_of([op("aten::mm", 1, 9)]), Need.LIVE) == Need.LIVE.value


def test_what_grew_before_the_optimizer_stepped_for_the_first_time_may_end_there():
    """As do the log probabilities of the moves of a game."""
    events, live = steps(), living(held("logps", APPEND, LIST)).live
    assert missing_needs(facts_of(events, live=live), retained_graph.needs) == []
    outdone = facts_of(events, live=live, run=Run(torch="2.13", was_outdone=True))
    assert missing_needs(outdone, retained_graph.needs) == [Need.LIVE]
    assert "optimizer" in reason_for(outdone, Need.LIVE)
