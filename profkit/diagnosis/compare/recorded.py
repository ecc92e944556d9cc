"""A recording as a comparison needs it: settings, step times, and tables of operators and lines."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from profkit.core.errors import UnreadableInput
from profkit.core.files.kinds import leads_out, links_out
from profkit.core.files.reading import refuse_special_file
from profkit.derive.device.generated import parse_generated
from profkit.derive.facts import Facts, derived_once
from profkit.diagnosis.launch.finding import find_ranks, is_light
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Diagnosis
from profkit.patterns.places.events import call_site
from profkit.run.directory import (
    CallSite,
    Run,
    find_trace,
    noted_origin,
    unprofiled_steps,
)
from profkit.trace.events import Bools, Category, Int64s, Rows

_Key = TypeVar("_Key", bound=Hashable)
LineKey = tuple[str, str, str]
"""File name, function and source. A line keeps its key when lines are added above it."""
CallKey = tuple[str, LineKey | None]


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator, kernel or line did: calls per measured step, and its time in each. It ``is_steady`` if every
    step calls it equally often."""

    calls: float
    step_ns: tuple[int, ...]
    is_steady: bool = True

    @property
    def median_ns(self) -> float:
        return float(np.median(self.step_ns))


NOTHING = Work(0.0, (0,))


@dataclass(frozen=True, slots=True)
class Recorded:
    """``control`` is the work by kind and shapes; ``kinds`` and ``shapes`` are the operators that the program itself
    called, and the shapes of their inputs. ``calls`` are the operators by name and line, without what the profiler
    added; empty if a device works beside the host.

    ``disturbance`` is how much longer a step's operators took than at their best, as a logarithm.
    """

    path: Path
    run: Run
    diagnosis: Diagnosis
    measured_ns: tuple[int, ...]
    step_source: str
    operators: Mapping[str, Work]
    lines: Mapping[LineKey, Work]
    sites: Mapping[LineKey, CallSite]
    control: Mapping[tuple[str, ...], Work]
    calls: Mapping[CallKey, Work]
    kinds: frozenset[str]
    shapes: Mapping[str, frozenset[str]]
    disturbance: float

    @property
    def unprofiled_ns(self) -> tuple[int, ...]:
        """The durations of the steps without a profiler; empty if unknown."""
        first, later = unprofiled_steps(self.run, self.diagnosis.timing.bound_by)
        return first + later


def merge(tables: Sequence[Mapping[_Key, Work]]) -> dict[_Key, Work]:
    """All runs of a side as one: average calls, and the times of all steps. What a run lacks took no time."""
    merged: dict[_Key, Work] = {}
    for key in {key: None for table in tables for key in table}:
        works = [table.get(key, NOTHING) for table in tables]
        calls = sum(work.calls for work in works) / len(tables)
        is_steady = all(work.is_steady and work.calls == works[0].calls for work in works)
        merged[key] = Work(round(calls, 3), tuple(ns for work in works for ns in work.step_ns), is_steady)
    return merged


def find_recordings(path: Path) -> list[Path]:
    """A trace, a run directory, or the run directories in ``path``, which are repetitions. For a launch, whose ranks
    all take the same steps, the first fully recorded rank. For a directory with only the reports on a recording, that
    recording, wherever it lies.

    Raises `UnreadableInput` if there is none.
    """
    if path.is_file():
        return [path]
    refuse_special_file(path)
    if not path.is_dir():
        raise UnreadableInput(path, "no such file or directory")
    within = (child for child in path.iterdir() if child.is_dir() and not leads_out(child, path))
    runs = _run_at(path) or sorted(run for child in within for run in _run_at(child))
    if not runs:
        missing = "holds no trace (*.pt.trace.json[.gz]) and no run directory with one"
        raise UnreadableInput(path, f"{missing}{links_out(path)}")
    return runs


def _run_at(directory: Path) -> list[Path]:
    ranks = find_ranks(directory)
    if ranks:
        return [next((rank for rank in ranks if not is_light(rank)), ranks[0])]
    if find_trace(directory) is not None:
        return [directory]
    origin = noted_origin(directory)
    if origin is None:
        return []
    if not origin.is_file():
        raise UnreadableInput(directory, f"holds the reports on {origin}, which is not there any more")
    return [origin]


def read_recording(path: Path) -> Recorded:
    """Read, derive and diagnose one recording. Raises `UnreadableInput`."""
    facts = read_facts(path)
    diagnosis = diagnose(facts)
    lines, sites = _lines(facts)
    return Recorded(
        path=path,
        run=facts.run,
        diagnosis=diagnosis,
        measured_ns=tuple(facts.steps.duration_ns[facts.steps.measured].tolist()),
        step_source=diagnosis.timing.steps_from,
        operators=_operators(facts),
        lines=lines,
        sites=sites,
        control=_control(facts),
        calls={} if facts.device.present else _calls(facts),
        kinds=_kinds(facts),
        shapes=_shapes(facts),
        disturbance=_disturbance(facts),
    )


def _host_work(facts: Facts) -> Bools:
    mask: Bools = facts.measured & facts.trace.in_categories(Category.OPERATOR, Category.RUNTIME)
    return mask


def _device_work(facts: Facts) -> Bools:
    """What the measured steps launched, however late the device does it."""
    mask = np.zeros(len(facts.trace.events), dtype=bool)
    mask[facts.launches.work[facts.steps.in_measured(facts.launches.launched_ns)]] = True
    return mask


@derived_once
def _steps_of(facts: Facts) -> Int64s:
    """The step that each event belongs to, -1 outside all steps: that of its launch, or on the host of its start."""
    steps, launches = facts.steps, facts.launches
    step = steps.index_of(facts.trace.events.start_ns)
    step[launches.work] = steps.index_of(launches.launched_ns)
    return step


def _operators(facts: Facts) -> dict[str, Work]:
    """By name: self time of operators and runtime calls on the host, duration of work on the device. A generated kernel
    is named by what it does, because the number in its own name differs between compilations."""
    names, codes = facts.trace.names, facts.trace.events.name_code.astype(np.int64)
    found: dict[str, list[Work]] = {}
    for wanted, where in ((_host_work(facts), ""), (_device_work(facts), " (device)")):
        for code, work in _tabulate(facts, wanted, codes).items():
            found.setdefault(f"{parse_generated(names[code]) or names[code]}{where}", []).append(work)
    return {name: _together(works) for name, works in found.items()}


def _control(facts: Facts) -> dict[tuple[str, ...], Work]:
    """By name, shapes and types: the work that determines the step time, the device's if there is a device."""
    trace, events = facts.trace, facts.trace.events
    wanted = _device_work(facts) if facts.device.present else _host_work(facts)
    columns = np.stack([events.name_code, events.dims_code, events.types_code]).astype(np.int64)
    rows = np.flatnonzero(wanted)
    distinct, inverse = np.unique(columns[:, rows], axis=1, return_inverse=True)
    keys = np.full(len(events), -1, dtype=np.int64)
    keys[rows] = inverse.reshape(-1)
    works = _tabulate(facts, wanted, keys)
    return {
        (trace.names[distinct[0, key]], trace.text_of(distinct[1, key]), trace.text_of(distinct[2, key])): work
        for key, work in works.items()
    }


def _calls(facts: Facts) -> dict[CallKey, Work]:
    """By name and line; a backward operator belongs to the line of its forward operator."""
    key_of_site, _ = _line_keys(facts)
    names, site = facts.trace.events.name_code.astype(np.int64), facts.lines.forward_site.astype(np.int64)
    many = int(site.max(initial=-1)) + 2  # with -1 for no line
    works = _tabulate(facts, _host_work(facts), names * many + site + 1, _self_ns_unprofiled(facts))
    found: dict[CallKey, list[Work]] = {}
    for code, work in works.items():
        key = facts.trace.names[code // many], key_of_site.get(code % many - 1)
        found.setdefault(key, []).append(work)
    return {key: _together(works) for key, works in found.items()}


def _together(works: Sequence[Work]) -> Work:
    """The sum of works in the same steps, such as sites with the same line key."""
    times = tuple(map(sum, zip(*(work.step_ns for work in works), strict=True)))
    return Work(round(sum(work.calls for work in works), 3), times, all(work.is_steady for work in works))


@derived_once
def _self_ns(facts: Facts) -> Int64s:
    return facts.tree.self_ns(facts.trace.events)


def _self_ns_unprofiled(facts: Facts) -> Int64s:
    """Self time of each event on the host, without what the profiler added in it."""
    tree, events = facts.tree, facts.trace.events
    added_ns = facts.overhead.covered_within(events.start_ns, tree.end_ns)
    inner = tree.parent >= 0
    of_children_ns = np.bincount(tree.parent[inner], weights=added_ns[inner], minlength=len(events))
    own_ns: Int64s = np.maximum(_self_ns(facts) - (added_ns - of_children_ns), 0).astype(np.int64)
    return own_ns


def _lines(facts: Facts) -> tuple[dict[LineKey, Work], dict[LineKey, CallSite]]:
    """By the line that called it; a backward operator belongs to the line of its forward operator."""
    key_of_site, sites = _line_keys(facts)
    site = facts.lines.forward_site.astype(np.int64)
    found: dict[LineKey, list[Work]] = {}
    for code, work in _tabulate(facts, _host_work(facts) & (site >= 0), site).items():
        if code in key_of_site:
            found.setdefault(key_of_site[code], []).append(work)
    return {key: _together(works) for key, works in found.items()}, sites


def _line_keys(facts: Facts) -> tuple[dict[int, LineKey], dict[LineKey, CallSite]]:
    """The key of each site that called something in a measured step, and the first site of each key."""
    site = facts.lines.forward_site
    keys: dict[int, LineKey] = {}
    sites: dict[LineKey, CallSite] = {}
    for code in np.unique(site[_host_work(facts) & (site >= 0)]):
        if (place := call_site(facts, int(code))) is not None:
            keys[int(code)] = key = line_key(place.file, place.function, place.source)
            sites.setdefault(key, place)
    return keys, sites


def line_key(file: str, function: str, source: str) -> LineKey:
    return re.split(r"[\\/]", file)[-1], function, " ".join(source.split())


def _tabulate(facts: Facts, wanted: Bools, key: Int64s, self_ns: Int64s | None = None) -> dict[int, Work]:
    """For each key the calls per measured step and the time in each measured step: self time on the host, duration on
    the device."""
    events, steps = facts.trace.events, facts.steps
    rows: Rows = np.flatnonzero(wanted)
    if not rows.size:
        return {}
    numbers = np.cumsum(steps.measured) - 1
    step = numbers[_steps_of(facts)[rows]]
    keys, inverse = np.unique(key[rows], return_inverse=True)
    on_host = facts.tree.depth[rows] >= 0
    self_ns = _self_ns(facts) if self_ns is None else self_ns
    time_ns = np.where(on_host, self_ns[rows], events.duration_ns[rows])
    count = steps.measured_count
    sums = np.bincount(inverse * count + step, weights=time_ns, minlength=len(keys) * count).reshape(-1, count)
    calls = np.bincount(inverse * count + step, minlength=len(keys) * count).reshape(-1, count)
    is_steady = (calls == calls[:, :1]).all(axis=1)
    return {
        int(code): Work(round(float(calls[i].mean()), 3), tuple(int(t) for t in sums[i]), bool(is_steady[i]))
        for i, code in enumerate(keys)
    }


def _disturbance(facts: Facts) -> float:
    """The operators of the median step against the sum of each call's fastest time.

    A slow operator is slow in every step and does not count. A program that others keep from running loses time in
    different operators in each step.
    """
    events, steps = facts.trace.events, facts.steps
    rows = np.flatnonzero(_host_work(facts))
    if not rows.size or steps.measured_count < 2:
        return 0.0
    step, kind, time_ns = steps.index_of(events.start_ns[rows]), events.name_code[rows], _self_ns(facts)[rows]
    order = np.lexsort((rows, kind, step))
    _, first, count = np.unique(np.stack([step, kind])[:, order], axis=1, return_index=True, return_counts=True)
    rank = np.arange(len(rows)) - np.repeat(first, count)  # the n-th call of its kind in its step
    calls = np.stack([kind[order], rank])
    _, inverse, times = np.unique(calls, axis=1, return_inverse=True, return_counts=True)
    least = np.full(len(times), np.inf)
    np.minimum.at(least, inverse.reshape(-1), time_ns[order])
    everywhere = (times == steps.measured_count)[inverse.reshape(-1)]
    totals = np.bincount(np.searchsorted(np.unique(step), step[order][everywhere]), weights=time_ns[order][everywhere])
    best = float(least[times == steps.measured_count].sum())
    return float(np.log(np.median(totals) / best)) if best > 0 and totals.size else 0.0


def _kinds(facts: Facts) -> frozenset[str]:
    rows = facts.operators.rows
    codes = np.unique(facts.trace.events.name_code[rows[facts.measured[rows]]])
    return frozenset(facts.trace.names[code] for code in codes)


def _shapes(facts: Facts) -> dict[str, frozenset[str]]:
    """For each kind of operator that the program itself called, the shapes of its inputs."""
    trace, events = facts.trace, facts.trace.events
    rows = facts.operators.rows
    rows = rows[facts.measured[rows] & (events.dims_code[rows] >= 0)]
    pairs: Iterable[np.ndarray] = np.unique(np.stack([events.name_code[rows], events.dims_code[rows]]), axis=1).T
    found: dict[str, set[str]] = {}
    for name, dims in pairs:
        found.setdefault(trace.names[name], set()).add(trace.text_of(int(dims)))
    return {name: frozenset(texts) for name, texts in found.items()}
