"""The wording of what several ranks did together, shared by the text, Markdown and HTML reports."""

from __future__ import annotations

from statistics import median

from profkit.core.units import format_bytes, format_count, format_share, format_time, pick_form
from profkit.findings.values import LATE_BECAUSE, MEDIUM_FROM, GroupSummary, LaunchSummary, RankSummary
from profkit.report.wording import printable, short_place

THE_RANKS = "The ranks"
_MOST_NOTES = 5
"""In text and Markdown; the page and diagnosis.json have all."""
_MOST_LATE = 3
_MOST_STAGES = 8
_MOSTLY = 0.75
"""Of all waiting. Ranks that take turns cause less each."""
_SHARED = 0.8
"""Of its lateness. A rank that shares no wait costs about as much as it is late; medians and means differ by less."""


def short_launch_lines(launch: LaunchSummary) -> list[str]:
    """`launch_lines` and the first few notes."""
    lines = [*launch_lines(launch), *map(printable, launch.notes[:_MOST_NOTES])]
    left = len(launch.notes) - _MOST_NOTES
    return [*lines, f"and {format_count(left, 'more note')} in diagnosis.json"] if left > 0 else lines


def launch_lines(launch: LaunchSummary) -> list[str]:
    """At most five lines: who took part, up to three late ranks (or two and the bubble of a pipeline), and what
    communication costs."""
    late = late_ranks(launch)
    pipelines = _pipeline_lines(launch)
    named = late[: _MOST_LATE - len(pipelines)]
    lines = [_overview(launch), *(_late_line(one) for one in named), *pipelines]
    if not late and _is_timed(launch) and not launch.pipelines:
        lines.append(_nobody_late(launch))
    return [*lines, *_communication(launch)]


def late_ranks(launch: LaunchSummary) -> list[RankSummary]:
    """The ranks that others wait for long enough to matter, and by more than chance or because they had no CPU; the
    worst first."""
    return [one for one in _waited_for(launch) if not one.is_by_chance or one.cause == "contention"]


def _waited_for(launch: LaunchSummary) -> list[RankSummary]:
    """Ranks that are late together share a wait, so what decides is how late each is, not its share."""
    least_ns = MEDIUM_FROM * (launch.step_time_ns or 0)
    found = (one for one in launch.ranks if one.caused_ns and max(one.caused_ns, _mean_lateness(one)) >= least_ns)
    return sorted(found, key=lambda one: -one.caused_ns)


def _mean_lateness(one: RankSummary) -> float:
    """Nanoseconds a step."""
    return one.late_ns * one.late_steps / max(one.steps, 1)


def _nobody_late(launch: LaunchSummary) -> str:
    waited_for = _waited_for(launch)
    if waited_for and waited_for[0].caused_ns >= _MOSTLY * sum(one.caused_ns for one in launch.ranks):
        worst = waited_for[0]
        return (
            f"The others wait longest for {name_of(worst)}, in {worst.late_steps:,} of "
            f"{format_count(worst.steps, 'step')}, but its own work varies so much that this may be chance"
        )
    if waited_for:
        return "The ranks take turns waiting: no rank's own work is longer than the others' by more than chance"
    return f"No rank keeps others waiting for {format_share(MEDIUM_FROM)} of a step or more"


def _is_timed(launch: LaunchSummary) -> bool:
    return bool(launch.step_time_ns) and len(launch.ranks) > 1


def _overview(launch: LaunchSummary) -> str:
    count = len(launch.ranks)
    hosts = len({one.host for one in launch.ranks} - {""})
    ranks = format_count(count, "rank") if launch.world_size <= count else f"{count:,} of {launch.world_size:,} ranks"
    where = f" on {format_count(hosts, 'host')}" if hosts else ""
    parts = [f"{ranks}{where} {pick_form(count, 'was', 'were')} recorded"]
    if launch.step_time_ns:
        parts.append(f"a step takes {format_time(launch.step_time_ns)}")
    if _is_timed(launch):
        waited_ns = median(one.waited_ns for one in launch.ranks)
        share = format_share(waited_ns / launch.step_time_ns) if launch.step_time_ns else ""
        parts.append(f"of which the median rank waits {format_time(waited_ns)} ({share}) for others")
    return ", ".join(parts)


def name_of(one: RankSummary) -> str:
    """``rank 3 (host b)``."""
    return f"rank {one.rank}{f' (host {printable(one.host)})' if one.host else ''}"


def _late_line(one: RankSummary) -> str:
    name = name_of(one)
    how_often = f"is late in {one.late_steps:,} of {format_count(one.steps, 'step')}, by {format_time(one.late_ns)}"
    each = " each" if one.late_steps > 1 else ""
    why = reason(one) or "none of its recorded work takes that much longer"
    wait = f"{format_count(one.kept_waiting, 'other rank')} {pick_form(one.kept_waiting, 'waits', 'wait')} for it"
    shared = f", and {format_time(one.caused_ns)} a step is its share of that wait" if _shares(one) else ""
    return f"{name[0].upper()}{name[1:]} {how_often}{each}: {why}; {wait}{shared}"


def _shares(one: RankSummary) -> bool:
    """Whether other ranks are late at the same time, so that what this one is late by is no wait for it alone."""
    return one.caused_ns < _SHARED * _mean_lateness(one)


def reason(one: RankSummary) -> str:
    """``it waits for its DataLoader, train.py:31``; empty if the recording does not show why."""
    parts = [LATE_BECAUSE.get(one.cause, ""), short_place(one.location) if one.location else ""]
    return ", ".join(part for part in parts if part)


def _pipeline_lines(launch: LaunchSummary) -> list[str]:
    """The pipeline with the largest idle share, and how uneven its stages are."""
    worst = max(launch.pipelines, key=lambda one: one.idle_fraction, default=None)
    if worst is None:
        return []
    count = len(launch.pipelines)
    ranks = ", ".join(str(one.rank) for one in worst.stages[:_MOST_STAGES])
    ranks = f"{ranks} …" if len(worst.stages) > _MOST_STAGES else ranks
    who = f"{count:,} pipelines; the one of ranks {ranks}" if count > 1 else f"A pipeline of ranks {ranks}"
    batches = format_count(worst.micro_batches, "micro-batch", "micro-batches")
    longest = max(worst.stages, key=lambda one: one.worked_ns)
    mean_ns = sum(one.worked_ns for one in worst.stages) / len(worst.stages)
    idle, even = format_share(worst.idle_fraction), format_share(worst.even_fraction)
    text = (
        f"{who} takes {batches} a step. A stage waits for the stages before or after it for {idle} of it (with equal "
        f"stages: {even}). Rank {longest.rank} works longest, {format_time(longest.worked_ns)} against "
        f"{format_time(mean_ns)} for the mean stage"
    )
    return [text]


def _communication(launch: LaunchSummary) -> list[str]:
    exposed_ns = median(one.exposed_ns for one in launch.ranks) if launch.ranks else 0
    largest = max(launch.groups, key=lambda one: one.time_ns_per_step, default=None)
    parts = []
    if exposed_ns and launch.step_time_ns:
        share = format_share(exposed_ns / launch.step_time_ns)
        parts.append(f"Communication itself delays the median rank by {format_time(exposed_ns)} a step ({share})")
    if largest is not None and largest.collectives_per_step:
        parts.append(_moved(largest))
    text = "; ".join(parts)
    return [f"{text[0].upper()}{text[1:]}"] if text else []


def _moved(group: GroupSummary) -> str:
    calls = f"{group.collectives_per_step:,.3g} {pick_form(round(group.collectives_per_step), 'call', 'calls')}"
    if not group.bytes_per_step:
        return f"{group_name(group)} makes {calls} a step"
    rate = f", at {bandwidth(group)}" if bandwidth(group) else ""
    return f"{group_name(group)} moves {format_bytes(group.bytes_per_step)} a step in {calls}{rate}"


def group_name(group: GroupSummary) -> str:
    """``group tp (2 ranks)``; ``the group of 2 ranks`` if the recording does not name it."""
    return group_title(group.name, group.size)


def group_title(name: str, size: int) -> str:
    ranks = format_count(size, "rank") if size > 0 else "unknown ranks"
    return f"group {printable(name)} ({ranks})" if name else f"the group of {ranks}"


def bandwidth(group: GroupSummary) -> str:
    """``9.80 GB/s``; empty if nothing took any time."""
    if group.time_ns_per_step <= 0 or group.bytes_per_step <= 0:
        return ""
    return f"{format_bytes(group.bytes_per_step / group.time_ns_per_step * 1e9)}/s"


def size_parts(group: GroupSummary) -> list[tuple[str, str, str]]:
    """The histogram of sizes: the limit, how many calls per step, and the bytes they move together."""
    return [
        (f"up to {format_bytes(one.up_to_bytes)}", f"{one.count:,.3g}", format_bytes(one.bytes)) for one in group.sizes
    ]
