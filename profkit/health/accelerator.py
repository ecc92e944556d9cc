"""Was the device that computes recorded at all?"""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.units import format_count

_MOST_NAMED = 6


def describe_unrecorded(facts: Facts) -> str | None:
    """Why nothing can be said of the work of the device that the program computed on; None where all of it is there."""
    accelerator = facts.accelerator
    if accelerator is None or accelerator.is_recorded:
        return None
    advice = f"; ProfilerActivity.{accelerator.activity} records it" if accelerator.activity else ""
    return (
        f"the program used {accelerator.label} whose work was not recorded ({accelerator.evidence}{advice}): what is "
        "on the host only is judged, times of the device are not known"
    )


def check_foreign(facts: Facts) -> str | None:
    """Events of categories that the reader does not know, which are in no figure."""
    foreign = facts.trace.recording.foreign
    if not foreign:
        return None
    total = format_count(sum(count for _, count in foreign), "event")
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(foreign, key=lambda each: -each[1])[:_MOST_NAMED])
    more = f" and {format_count(len(foreign) - _MOST_NAMED, 'more')}" if len(foreign) > _MOST_NAMED else ""
    return f"{total} of kinds that profkit does not know are in no figure: {kinds}{more}"
