"""Gradients that DistributedDataParallel has averaged, and that the program then averages once more."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.patterns.averaging.exchanged import all_reduces, on_trace_clock, own_table, sizes_by_order
from profkit.patterns.averaging.gradients import gradient_sizes, stored_gradients, storing_gradients
from profkit.patterns.averaging.passes import Passes, find_passes
from profkit.patterns.ranks.exchanges import find_exchanges
from profkit.trace.events import Bools, Int64s
from profkit.trace.statistics import distinct

_MOST_ELSE = 0.5
"""Of the bytes of the gradients: what else is all-reduced there is a metric, or a second-order optimizer's statistics,
which are as large as gradients."""
_FEWEST_OF_GROUPS = 4
"""Ranks that can be averaged over in two ways, within a machine and then between machines."""
_NO_SIZES = "the recording does not show how large the messages after the backward pass are"
_NO_GROUPS = "the recording does not show which processes all-reduce gradients after the backward pass"


class SecondAverages(Struct, frozen=True):
    """``rows`` are the table's collectives, ``size_bytes`` what each sends, and ``of`` the backward pass that had
    averaged the same already. ``untold`` says why none could be found, if so."""

    rows: Int64s
    size_bytes: Int64s
    of: Int64s
    untold: str


class _Messages(Struct, frozen=True):
    """The all-reduces of all passes: the table's collective, the pass, its bytes, the group of processes, and whether
    the storing of a gradient called it, or it came after the last gradient was stored."""

    rows: Int64s
    of: Int64s
    size_bytes: Int64s
    group: Int64s
    within: Bools
    after: Bools


@derived_once
def find_second_averages(facts: Facts) -> SecondAverages:
    """All-reduces between the last gradient of a pass and the optimizer, in the group in which the pass averaged all of
    its gradients, that one after another carry exactly as many bytes as these."""
    last_ns, whole = _stored(facts, find_passes(facts))
    sent = _messages(facts, find_passes(facts), last_ns)
    chosen = [np.zeros(0, dtype=np.int64)]
    untold, compared = "", False
    for one in distinct(sent.of):
        mine = sent.of == one
        inner = np.flatnonzero(mine & sent.within)
        groups = distinct(sent.group[inner])
        if len(groups) != 1:
            continue
        outer = np.flatnonzero(mine & sent.after & (sent.group == groups[0]))
        if not outer.size:
            continue
        if not whole[one] or (sent.size_bytes[np.append(inner, outer)] < 0).any():
            untold = untold or _NO_SIZES
            continue
        compared = True
        again = outer[_carrying(sent.size_bytes[outer], int(whole[one]))]
        if not again.size or sent.size_bytes[inner].sum() < whole[one]:
            continue
        if _is_one_group(facts, int(groups[0])):
            chosen.append(again)
        else:
            untold = _NO_GROUPS
    found = np.concatenate(chosen)
    untold = "" if compared and untold == _NO_SIZES else untold
    return SecondAverages(sent.rows[found], sent.size_bytes[found], sent.of[found], untold)


def _stored(facts: Facts, passes: Passes) -> tuple[Int64s, Int64s]:
    """By pass: when its last gradient is stored, and the bytes of all its gradients. A pass recorded without shapes has
    as many as another that stores as many gradients; 0 if there is none."""
    storing = storing_gradients(facts)
    rows = stored_gradients(facts)
    of = passes.of(facts.trace.events.start_ns[rows])
    rows, of = rows[of >= 0], of[of >= 0]
    around = facts.tree.nearest_ancestor(storing, include_self=True, of=rows)
    last_ns, whole = np.zeros(len(passes), dtype=np.int64), np.zeros(len(passes), dtype=np.int64)
    np.maximum.at(last_ns, of, facts.tree.end_ns[around])
    size = gradient_sizes(facts, rows)
    np.add.at(whole, of, size)
    whole[of[size == 0]] = 0
    count = np.bincount(of, minlength=len(passes))
    known = {int(count[one]): int(whole[one]) for one in np.flatnonzero(whole)}
    return last_ns, np.array([known.get(number, 0) for number in count.tolist()], dtype=np.int64)


def _messages(facts: Facts, passes: Passes, last_ns: Int64s) -> _Messages:
    taken, call = own_table(facts).collectives, find_exchanges(facts).call
    issue_ns = on_trace_clock(facts, taken.issue_ns)
    rows = np.flatnonzero(all_reduces(facts) & (call >= 0))
    of = passes.of(issue_ns[rows])
    rows, of = rows[of >= 0], of[of >= 0]
    within = facts.tree.under(storing_gradients(facts))[call[rows]]
    after = ~within & (issue_ns[rows] >= last_ns[of])
    return _Messages(rows, of, sizes_by_order(taken, rows, of), taken.group[rows], within, after)


def _carrying(size_bytes: Int64s, whole: int) -> slice:
    """Which of these messages, one after another, carry exactly that many bytes; none if the others are many."""
    sent = np.concatenate([[0], np.cumsum(size_bytes)])
    first = np.flatnonzero(np.isin(sent + whole, sent))
    if not first.size or sent[-1] - whole >= _MOST_ELSE * whole:
        return slice(0, 0)
    return slice(int(first[0]), int(np.searchsorted(sent, sent[first[0]] + whole)))


def _is_one_group(facts: Facts, group: int) -> bool:
    """Whether what the table holds as one group is known to be one: by its name, by its stream, or because there are
    too few ranks for two."""
    table = own_table(facts)
    mine = table.collectives.group == group
    reported = table.groups[group].name or find_exchanges(facts).on_device[mine].all()
    return bool(reported) or 0 < table.identity.world_size < _FEWEST_OF_GROUPS
