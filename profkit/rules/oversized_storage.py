"""A name keeps small views, and each keeps the whole storage that it looks into.

What it detects
A variable, an attribute or an entry of a container that holds more tensors at the end of each recorded step than at the
end of the one before, over four samples or more, if no name uses even half of the bytes of their storages, and the
allocator's live bytes grow as much. Views of one storage, such as slices of a data set, and views of what another name
holds in full cost nothing and are no fault.

Why is this bad?
Indexing with a slice or an integer copies nothing: the result is a window on the same storage, which lives as long as
any window on it. One row of a batch of features, kept for later, keeps the batch.

Example
    kept = []
    for x in batches:
        features = encoder(x)
        kept.append(features[:1])

Use instead
    kept = []
    for x in batches:
        features = encoder(x)
        kept.append(features[:1].clone())

How the saving is estimated
Memory, not time: by how much the storages that the name holds grow from step to step, less the part in use, which the
copies would take. It is at most the growth of the allocator's live bytes.
"""

from __future__ import annotations

import ast

from profkit.patterns import Places, locations_of, program_operators
from profkit.patterns.named_lines import outliving_lines
from profkit.patterns.retention import holding
from profkit.rules.base import (
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    pick_form,
    rule,
)
from profkit.source.syntax import parse_line
from profkit.trace import distinct

_TAKING_PARTS = frozenset(("chunk", "narrow", "select", "slice", "split", "split_with_sizes", "unbind"))
"""Views of less than the whole."""


@rule(Kind.FAULT, Need.LIVE, Need.MEMORY, Need.GROWTH)
def oversized_storage(facts: Facts) -> Suspicions:
    """One finding for each line that makes a name keep views."""
    wasted = {
        name: min(name.more_bytes, holding.live_growth_per_step(facts)) - name.more_used_bytes
        for name in holding.growing_names(facts)
        if name.is_mostly_wasted
    }
    names = [name for name, size in wasted.items() if size >= holding.notable_growth_bytes(facts)]
    for name in holding.first_at_each_line(sorted(names, key=lambda name: -name.more_bytes)):
        yield _suspect(facts, name, wasted[name])


def _suspect(facts: Facts, name: holding.GrowingName, wasted: int) -> Suspicion:
    """What a bounded container wastes does not grow for ever: then its share of the peak so far is what counts."""
    storages = pick_form(name.more_tensors, "it a storage", "them storages")
    kept = Location.of(name.site) if name.site else None
    viewed = _where_viewed(facts, name)
    location = kept if kept and _makes_what_it_keeps(kept.source) else viewed or kept
    return Suspicion(
        message=f"`{name.path}` keeps {format_count(name.more_tensors, 'tensor')} more each step, "
        f"{format_bytes(name.more_used_bytes)} in all, and with {storages} of {format_bytes(name.more_bytes)}.",
        fix=f"Keep a copy of the part instead of a view of the whole: put `x.clone()` into `{name.path}`.",
        places=Places.of([location, kept, viewed, *outliving_lines(facts)]),
        size_bytes=wasted,
        peak_fraction=name.wasted_bytes / max(facts.memory.peak_bytes, name.wasted_bytes, 1),
        grows=not name.is_bounded,
        confidence=0.95,
        count=name.more_tensors,
        evidence={"storage_bytes_per_step": name.more_bytes, "used_bytes_per_step": name.more_used_bytes},
    )


def _makes_what_it_keeps(source: str) -> bool:
    """Whether a line such as ``kept.append(part(x))`` or ``kept[i] = part(x)`` makes what it adds, so that it can add a
    copy instead. Something that already has a name may be more than the tensor."""
    line = parse_line(source)
    value = getattr(line, "value", None)
    if isinstance(line, ast.Expr) and isinstance(value, ast.Call):
        value = next(iter(value.args[-1:]), None)
    return value is not None and not isinstance(value, ast.Name)


def _where_viewed(facts: Facts, name: holding.GrowingName) -> Location | None:
    """The one line that takes a part of a tensor which makes up most of what the name keeps of each step. None if there
    are several or none; then the line that keeps it has to do."""
    if not facts.operators.has_shapes:
        return None
    rows = program_operators(facts, _TAKING_PARTS)
    sizes = facts.operators.input_bytes[rows]
    wasted = (2 * sizes > name.more_bytes) & (sizes <= name.more_bytes)
    places = locations_of(facts, distinct(facts.lines.site[rows[wasted]]))
    return places[0] if len(places) == 1 else None
