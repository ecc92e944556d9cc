"""Was the device that computes recorded at all?"""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.units import format_count

_MOST_NAMED = 6


def describe_unrecorded(facts: Facts) -> str | None:
    """Why nothing can be said about the device that the program computed on; None if all of its work was recorded."""
    accelerator = facts.accelerator
    if accelerator is None or accelerator.is_recorded:
        return None
    advice = f"; ProfilerActivity.{accelerator.activity} records it" if accelerator.activity else ""
    return (
        f"the program used {accelerator.label} whose work was not recorded ({accelerator.evidence}{advice}): only "
        "the host's side is judged, and the device's times are unknown"
    )


def check_foreign(facts: Facts) -> str | None:
    """Events of categories that the reader does not know, which no figure includes."""
    foreign = facts.trace.recording.foreign
    if not foreign:
        return None
    total = format_count(sum(count for _, count in foreign), "event")
    kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(foreign, key=lambda each: -each[1])[:_MOST_NAMED])
    more = f" and {len(foreign) - _MOST_NAMED:,} more" if len(foreign) > _MOST_NAMED else ""
    return f"no figure includes {total} of kinds that profkit does not know: {kinds}{more}"
