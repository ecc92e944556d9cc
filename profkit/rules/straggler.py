"""One rank needs longer for its part of the step than the others, and they wait for it.

What it detects
Ranks, at most half of all, whose own work takes longer than that of the others by more than chance, if the others wait
for them: if they were as fast, the steps of the job would be shorter. Chance is how much ranks vary from step to step,
or how much the others differ among each other if that is more (Rosner's test of outliers, at a level of 1 % for the
launch); and each rank has to be later than its own steps vary (Student's t test, 1 %). Waits for other ranks are not
work, so it does not matter at which collective they show. Nor is the time in which a rank was ready to run and other
threads had the CPUs, if profkit recorded it: no change to the program gives it back. Only ranks that take part in the
same collectives are compared, because stages of a pipeline have different work to do. Not reported: a rank that is late
now and then, ranks that take turns in being late, and work hidden behind a collective's transfer. `unbalanced-input`
reports what takes longer because inputs are larger. If more than half of the ranks are slow, the work takes that long,
and the others have less to do.

Why is this bad?
Ranks that train together finish each step together. The time that one of them loses is lost on all of them: on a
thousand GPUs, a thousandfold. No rank's step time shows it, as all are equally long, and on the ranks that wait it
looks like slow communication.

Example
    for x, y in loader:
        if rank == 0:
            save_pictures(x)  # the others wait for rank 0 in the backward pass
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

Use instead
    for step, (x, y) in enumerate(loader):
        if rank == 0 and step % 1000 == 0:
            save_pictures(x)
        ...

How the saving is estimated
All ranks are replayed together, with the work that takes longer on the late ranks made as fast as the median of the
others in the same step. Then the next slowest rank holds the job up, so the job gains less than these ranks do.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.launch.chance import LEAST_STEPS, stand_out
from profkit.derive.launch.joint_edits import JointEdit, combine_joint, shrink_ranks_work
from profkit.derive.launch.late import MOST_OF_IT, Late, find_late, usual_ns
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.table import Cause
from profkit.derive.launch.work_by_rank import WorkByRank, place_codes, place_site, step_index
from profkit.patterns import Places
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    pick_form,
    rule,
)
from profkit.savings.launch.uneven_inputs import uneven_inputs
from profkit.trace import Bools, Int64s, distinct

_UNCERTAINTY = 0.15
"""The median of the others varies from step to step."""
_MOST_NAMED = 8
"""As many GPUs as a machine has; the page's table has all ranks."""
_SPENT = {
    Cause.INPUT: "waiting for its DataLoader",
    Cause.COMPUTE: "computing",
    Cause.COPY: "copying between host and device",
    Cause.MEMORY: "asking the driver for memory",
    Cause.HOST: "in Python, with nothing for its device to do",
    Cause.GARBAGE: "collecting garbage",
    Cause.UNKNOWN: "outside of PyTorch",
    Cause.UNRECORDED: "in what was not recorded of it",
}
_FIXES = {
    Cause.INPUT: "Find out why this rank's batches take longer: larger samples, a slower disk, fewer workers, or fewer "
    "free cores on its host.",
    Cause.COMPUTE: "Give all ranks the same amount of work here. If they have it, this rank's device is slower: "
    "compare clocks, temperature and what else runs on it.",
    Cause.COPY: "Find out why this rank copies more, or more slowly: the link of its GPU, pinned memory, NUMA binding.",
    Cause.MEMORY: "Find out why this rank's allocator runs short: larger inputs, or another process on its GPU.",
    Cause.HOST: "Do what only this rank does here less often, or in another thread or process; if all ranks do it, "
    "compare their hosts.",
    Cause.GARBAGE: "Collect garbage on all ranks in the same step (`gc.disable()`, and `gc.collect()` every n steps).",
    Cause.UNKNOWN: "Do what only this rank does here less often, or in another thread or process: writing files, "
    "logging, waiting for the network.",
    Cause.UNRECORDED: "Record every rank fully (`--ranks` with their number) to see what this one does in that time.",
}
_SLOWER = (
    "Compare this rank's machine with the others': clocks, temperature, NUMA binding, and what else runs on it; then "
    "the size of its inputs."
)


Reasons = dict[int, Int64s]
"""For each late rank, the latest first, the places that explain most of its lateness, the worst first. A rank whose
whole work is slower has none."""


@rule(Kind.FAULT, Need.RANKS)
def straggler(facts: Facts) -> Suspicions:
    """Compare what the ranks work in each step. Fixing only one of several equally late ranks saves nothing, so all of
    them are one finding."""
    launch = facts.launch
    assert launch is not None
    own = uneven_inputs(facts).balanced
    late = find_late(own)
    if len(own.steps) < LEAST_STEPS:
        raise CannotLook("fewer than three steps were recorded of all ranks: a slow rank cannot be told from chance")
    if late is None:
        raise CannotLook("no two of the recorded ranks take part in the same collectives")
    if not late.late.any():
        return
    ordered = late.ranks[np.argsort(-late.excess_ns[late.ranks].mean(axis=1), kind="stable")]
    longer = _longer_anywhere(own)
    reasons = {rank: _longer_places(own, late, rank, longer[rank]) for rank in ordered.tolist()}
    edit = combine_joint([_as_fast_as_usual(launch, own, late, *reason) for reason in reasons.items()])
    yield _tell(launch, own, late, reasons, edit)


def _longer_anywhere(own: WorkByRank) -> Bools:
    """By rank and place: whether the rank works longer there than others of its kind, by more than chance."""
    longer = np.zeros((len(own.kind), len(own.places)), dtype=bool)
    for code in distinct(own.kind):
        mine = np.flatnonzero(own.kind == code)
        for at, place in enumerate(own.places):
            longer[mine, at] = place[0] != Cause.CONTENTION and stand_out(own.place_ns[mine, :, at])
    return longer


def _longer_places(own: WorkByRank, late: Late, rank: int, longer: Bools) -> Int64s:
    """The places where the late rank works longer, the worst first; none if they explain less than half of its
    lateness."""
    excess_ns = (own.place_ns[rank] - usual_ns(own.place_ns, own.kind, late.late, rank)).mean(axis=0)
    places = np.flatnonzero(longer & (excess_ns > 0))
    explains = excess_ns[places].sum() >= MOST_OF_IT * late.excess_ns[rank].mean()
    return places[np.argsort(-excess_ns[places], kind="stable")] if explains else places[:0]


def _as_fast_as_usual(launch: Launch, own: WorkByRank, late: Late, rank: int, places: Int64s) -> JointEdit:
    """The rank's work at these places, or all of it, takes what the median of the ranks that are not late takes in the
    same step."""
    table = launch.tables[rank]
    at, known = step_index(own.steps, table.work.step)
    if len(places):
        usual, mine_ns = usual_ns(own.place_ns, own.kind, late.late, rank), own.place_ns[rank]
        code = place_codes(table, own.places)
        row = np.flatnonzero(known & np.isin(code, places))
        share = usual[at[row], code[row]] / np.maximum(mine_ns[at[row], code[row]], 1)
    else:
        row = np.flatnonzero(known & (table.work.cause != Cause.CONTENTION))
        usual = usual_ns(own.total_ns, own.kind, late.late, rank)
        share = usual[at[row]] / np.maximum(own.total_ns[rank, at[row]], 1)
    kept_ns = table.work.time_ns[row] * share.clip(max=1.0)
    return shrink_ranks_work(rank, row, kept_ns, _UNCERTAINTY)


def _tell(launch: Launch, own: WorkByRank, late: Late, reasons: Reasons, edit: JointEdit) -> Suspicion:
    mine_ns = late.excess_ns[late.ranks].mean(axis=0)
    longer_ns, late_steps = float(mine_ns.mean()), int((mine_ns > 0).sum())
    worst = dict.fromkeys(_worst(places) for places in reasons.values())
    causes = [None if place is None else Cause(own.places[place][0]) for place in worst]
    sites = [place_site(launch, own.places[place]) for place in worst if place is not None]
    return Suspicion(
        message=f"{_who(launch, late.ranks)} {pick_form(len(late.ranks), 'works', 'work')} {format_time(longer_ns)} "
        f"longer than the others, in {late_steps} of {len(own.steps)} steps, and they wait: "
        f"{_why(launch, own, reasons)}.",
        fix=" ".join(dict.fromkeys(_SLOWER if cause is None else _FIXES[cause] for cause in causes)),
        launch_edit=edit,
        worth=LOW_FROM,
        count=1,
        places=Places.of_sites(sites),
        evidence={
            "rank": launch.tables[next(iter(reasons))].identity.rank,
            "late_ranks": len(late.ranks),
            "longer_ns_per_step": int(longer_ns),
            "late_steps": late_steps,
            "steps": len(own.steps),
        }
        | ({} if causes[0] is None else {"cause": causes[0].name.lower()}),
    )


def _worst(places: Int64s) -> int | None:
    return int(places[0]) if len(places) else None


def _why(launch: Launch, own: WorkByRank, reasons: Reasons) -> str:
    """Each distinct reason once, starting with the latest rank's."""
    shared: dict[int | None, list[int]] = {}
    for rank, places in reasons.items():
        shared.setdefault(_worst(places), []).append(rank)
    texts = []
    for place, ranks in shared.items():
        whose = "" if len(shared) == 1 else f" of {_who(launch, np.array(sorted(ranks)), is_first=False)}"
        if place is not None:
            texts.append(f"most of that{whose} {_SPENT[Cause(own.places[place][0])]}")
        else:
            texts.append(f"all of the work{whose} takes longer" if whose else "all of its work takes longer")
    return ", ".join(texts)


def _who(launch: Launch, ranks: Int64s, is_first: bool = True) -> str:
    """``Rank 2``, ``Ranks 1 and 3``, ``The 4 ranks of host b``."""
    hosts = [table.identity.host for table in launch.tables]
    theirs = {hosts[rank] for rank in ranks.tolist()}
    are_several = len(set(hosts)) > 1
    if are_several and len(ranks) > 1 and len(theirs) == 1 and hosts.count(min(theirs)) == len(ranks):
        return f"{'The' if is_first else 'the'} {format_count(len(ranks), 'rank')} of host {min(theirs)}"
    names = [
        f"{launch.tables[rank].identity.rank}{f' ({hosts[rank]})' if are_several and hosts[rank] else ''}"
        for rank in ranks[:_MOST_NAMED].tolist()
    ]
    more = len(ranks) - len(names)
    named = [*names, f"{more:,} more"] if more else names
    together = f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else named[0]
    return f"{'Rank' if is_first else 'rank'}{'s' if len(ranks) > 1 else ''} {together}"
