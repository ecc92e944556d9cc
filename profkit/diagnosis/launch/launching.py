"""Diagnosing a launch: each rank's recording becomes a table, the tables are matched, and the recording of the rank
that the others wait for longest is judged too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from profkit.core.errors import UnreadableInput, UsageError
from profkit.core.failures import attempt
from profkit.core.files.kinds import linked_out
from profkit.core.units import format_count
from profkit.derive.facts import Facts
from profkit.derive.launch.late import find_late
from profkit.derive.launch.lateness import WaitCosts, find_reasons, latest_rank, weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.matching import match
from profkit.derive.launch.table import RankTable
from profkit.diagnosis.launch.finding import find_places, list_traces, number_in
from profkit.diagnosis.launch.here import reduce_here
from profkit.diagnosis.launch.remote import Reached, path_of, within_reach
from profkit.diagnosis.launch.schedule import Done
from profkit.diagnosis.launch.summary import summarise
from profkit.diagnosis.pipeline import Measure, diagnose_with_rows, read_facts
from profkit.diagnosis.settings import EVERYTHING, Settings
from profkit.diagnosis.verdict import conclude, with_ranks
from profkit.findings.values import Diagnosis, LaunchSummary, VerdictKind
from profkit.patterns.ranks.table import rank_table
from profkit.savings.launch.uneven_inputs import uneven_inputs
from profkit.trace.events import Rows

Reduce = Callable[[Callable[[str], Any], Sequence[str]], Iterable[Done[Any]]]
"""Does the work at each of the places, on some machine, and yields the results in any order."""
OnDone = Callable[[int, int], None]
"""Called with the number of recordings read so far, and of all recordings."""
_SCHEME = "ray://"


class Gathered(Struct, frozen=True):
    """What the ranks of a launch did together, and what they cost each other. ``shown`` is the place of the recording
    that is also judged by itself: that of the rank that costs the others most."""

    launch: Launch
    costs: WaitCosts
    shown: str


class Diagnosed(Struct, frozen=True):
    """The diagnosis of a launch. Unless another machine judged the shown rank, also the path of its recording, its
    facts, and the events behind each finding."""

    diagnosis: Diagnosis
    path: Path | None = None
    facts: Facts | None = None
    rows: tuple[Rows, ...] = ()


def diagnose_ranks(
    target: str,
    on: str | None = None,
    measure: Measure | None = None,
    settings: Settings = EVERYTHING,
    on_done: OnDone | None = None,
) -> Diagnosed:
    """Diagnose the launch whose recordings lie in ``target``, a folder on this machine or another file system.

    ``on`` names the Ray cluster whose machines read them (``ray``, ``ray://HOST:PORT``); None reads them here. The
    launch's notes name recordings that cannot be read. Raises `UnreadableInput` if there are none, or none can be read.
    """
    with _machines(target, on) as (places, reduce):
        if not places:
            raise UnreadableInput(target, "holds no recordings of several ranks")
        gathered = gather(places, reduce, on_done, _links_of(target))
        shown = path_of(gathered.shown)
        if shown is not None and not shown.exists():
            return _judged_there(gathered, settings, reduce)
        with within_reach(gathered.shown) as reached:
            found = _judge(gathered, reached, measure, settings)
        return found if shown is not None else structs.replace(found, path=None)  # the copy is removed


def _links_of(target: str) -> tuple[str, ...]:
    """What the launch's notes say of links: somebody who put ranks together by links misses them in the report."""
    path = path_of(target)
    linked = linked_out(path) if path is not None and path.is_dir() else []
    return (f"{format_count(len(linked), 'link')} out of the folder not followed: {linked[0]}",) if linked else ()


def gather(
    places: Sequence[str], reduce: Reduce = reduce_here, on_done: OnDone | None = None, notes: tuple[str, ...] = ()
) -> Gathered:
    """Read the recordings at these places, and match what their ranks did together. The launch has these ``notes``."""
    tables: dict[int, RankTable] = {}
    unread: dict[int, str] = {}
    for count, done in enumerate(reduce(read_rank, places), 1):
        if done.value is None:
            unread[done.number] = f"not read: {done.cause}"
        else:
            tables[done.number] = done.value
        if on_done is not None:
            on_done(count, len(places))
    if not tables:
        raise UnreadableInput(places[0], f"none of {format_count(len(places), 'recording')} could be read: {unread[0]}")
    launch = match([tables[number] for number in sorted(tables)])
    if not launch.tables:
        cause = f"none of {format_count(len(tables), 'recording')} fits others"
        raise UnreadableInput(places[0], ": ".join([cause, *launch.notes[:1]]))
    launch = structs.replace(launch, notes=(*launch.notes, *notes, *(unread[number] for number in sorted(unread))))
    costs = weigh_lateness(launch)
    full = [at for at, table in enumerate(launch.tables) if not table.is_light]
    shown = latest_rank(launch, costs, full)
    return Gathered(launch, costs, launch.tables[shown].source)


def read_rank(place: str) -> RankTable:
    """The table of the recording at a path or address. The name says which rank it is if the recording does not."""
    with within_reach(place) as reached:
        table = rank_table(read_facts(reached.path, origin=reached.origin), place)
    number = number_in(place)
    table = structs.replace(table, named_rank=number)
    if table.identity.rank >= 0 or number is None:
        return table
    return structs.replace(table, identity=structs.replace(table.identity, rank=number))


@contextmanager
def _machines(target: str, on: str | None) -> Iterator[tuple[list[str], Reduce]]:
    """The places of the recordings, and the function that has them read by machines that can reach them."""
    if on is None:
        yield find_places(target), reduce_here
        return
    from profkit.diagnosis.launch.on_ray import cluster, find_holders, reduce_on_ray

    path = path_of(target)
    with cluster(_address(on)):
        holders = find_holders(list_traces, str(path.absolute())) if path is not None else {}
        yield sorted(holders) or find_places(target), partial(reduce_on_ray, holders=holders)


def _address(on: str) -> str | None:
    """Raises `UsageError` for anything but ``ray`` and ``ray://ADDRESS``."""
    if on == "ray":
        return None
    if not on.startswith(_SCHEME) or on == _SCHEME:
        raise UsageError(f"--on {on}: give ray, or ray://HOST:PORT")
    return on.removeprefix(_SCHEME)


def _judge(gathered: Gathered, reached: Reached, measure: Measure | None, settings: Settings) -> Diagnosed:
    facts = read_facts(reached.path, launch=gathered.launch, origin=reached.origin)
    diagnosis, rows = diagnose_with_rows(facts, measure, settings)
    summary, failure = attempt("what the ranks did together", partial(_summarise, gathered, facts), None)
    diagnosis = replace(diagnosis, launch=summary, health=(*diagnosis.health, *failure))
    verdict = diagnosis.verdict
    if verdict is not None and verdict.kind is VerdictKind.NOTHING_FOUND:  # in the one rank
        verdict = conclude(diagnosis)
    if verdict is not None:
        diagnosis = replace(diagnosis, verdict=with_ranks(verdict, summary))
    return Diagnosed(diagnosis, reached.path, facts, tuple(rows))


def _judged_there(gathered: Gathered, settings: Settings, reduce: Reduce) -> Diagnosed:
    """The diagnosis, by the machine that has the recording."""
    (done,) = reduce(partial(_diagnosis_at, gathered, settings), [gathered.shown])
    if done.value is None:
        raise UnreadableInput(gathered.shown, f"cannot be read a second time: {done.cause}")
    return Diagnosed(done.value)


def _diagnosis_at(gathered: Gathered, settings: Settings, place: str) -> Diagnosis:
    return _judge(gathered, Reached(Path(place)), None, settings).diagnosis


def _summarise(gathered: Gathered, facts: Facts) -> LaunchSummary:
    launch, costs = gathered.launch, gathered.costs
    shown = next(table for table in launch.tables if table.source == gathered.shown)
    own = uneven_inputs(facts).own
    late = find_late(own)
    return summarise(launch, costs, own.staging, find_reasons(launch, costs, own, late), late, shown.identity.rank)
