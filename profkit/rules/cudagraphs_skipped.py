"""CUDA graphs were asked for, and the compiler goes without them.

What it detects
Compiled functions for which `mode="reduce-overhead"`, or the option `triton.cudagraphs`, asked for CUDA graphs and that
launch their kernels one by one all the same. profkit's own recordings hold the compiler's reason with its line. In
others, Python frames show that the manager of the graphs is called and launches none in any step; without frames, it
cannot be told from a function for which nobody asked for graphs. The first two calls, which warm up and record, do not
count, nor does a function of which any call launches a graph.

Why is this bad?
Whoever asks for graphs does so because the launches take longer than the kernels. PyTorch then warns once, among all
that a compilation prints, and each call goes on to pay for every launch.

Example
    @torch.compile(mode="reduce-overhead")
    def step(x, memory):
        y = model(x)
        memory.add_(y)
        return y

Use instead
    @torch.compile(mode="reduce-overhead")
    def step(x, memory):
        y = model(x)
        return y, memory + y

How the saving is estimated
The step is replayed with what lies between the first and the last launch of each call of the function taken out, and
with the shorter gaps of a graph between its kernels. Copies of inputs to where the graph reads them are not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.evidence.compiling import frame_of_regions, has_compiler_events
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.program import length_ns
from profkit.findings import Kind
from profkit.rules.base import CannotLook, Need, Suspicion, rule
from profkit.ruling.places import Places
from profkit.ruling.pricing import closer_in_a_graph
from profkit.run import SkippedGraph
from profkit.savings.edits import Edit, combine, shrink_spans
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.values import among, distinct
from profkit.units import format_count, format_time

_MANAGER = re.compile(r"torch/_inductor/cudagraph_trees\.py\(\d+\): (deferred_cudagraphify|run|_run)$")
"""What every call of a function goes through for which graphs were asked, whether it runs one or not."""
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_FEWEST_LAUNCHES = 2
"""A graph of one kernel gives nothing back."""
_UNCERTAINTY = 0.3
_FIXES = {
    "mutat": "Return the new value instead of writing it into an input, and copy it there outside of the compiled "
    "function; or let what is written stay in one place: a buffer of the module, or a tensor marked with "
    "`torch._dynamo.mark_static_address`.",
    r"cpu|multiple devices": "Make the tensor on the GPU (`device=x.device`), or keep it out of the compiled function.",
    r"dynamic|re-?record": "Call the function with a few fixed shapes, padded where need be, and with inputs that stay "
    "in one place: each new shape or place is another graph.",
}
"""By the compiler's reason (``torch/_inductor/cudagraph_utils.py``)."""
_OTHER_FIX = "Keep what the reason names out of the compiled function."
_UNKNOWN_FIX = (
    "The warning that PyTorch printed at the first call says why (`TORCH_LOGS=cudagraphs`); most often the function "
    "writes into an input: return the new value, and copy it outside."
)


class _Launching(Struct, frozen=True):
    """Calls of functions for which graphs were asked, in the measured steps, that launch one by one: the launches, and
    when the first of each call begins and the last ends."""

    launches: Rows
    start_ns: Int64s
    end_ns: Int64s


@rule(Kind.FAULT, Need.DEVICE)
def cudagraphs_skipped(facts: Facts) -> Iterator[Suspicion]:
    """One finding for each reason; one for all where frames alone tell."""
    if not has_compiler_events(facts):
        return
    if facts.run.torch is None:
        yield from _by_frames(facts)
    elif facts.run.compiled is not None and facts.run.compiled.skipped is None:
        raise CannotLook("whether CUDA graphs were asked for was not recorded (run the program under profkit again)")
    elif facts.run.compiled is not None:
        for skipped in facts.run.compiled.skipped or ():
            yield from _suspect(facts, _regions_of(facts, skipped), skipped)


def _by_frames(facts: Facts) -> Iterator[Suspicion]:
    frames = facts.trace.events.category == Category.PYTHON
    if not frames.any():
        raise CannotLook("whether CUDA graphs were asked for shows in Python frames alone (with_stack=True)")
    managed = frames & facts.trace.where_name(lambda name: _MANAGER.match(name) is not None)
    yield from _suspect(facts, facts.tree.outermost(managed), None)


def _regions_of(facts: Facts, skipped: SkippedGraph) -> Bools:
    """The runs of the compiled functions that this reason is about; of all where it does not say."""
    frame, compiled = frame_of_regions(facts), facts.run.compiled
    known = {skipped.frame} if skipped.frame >= 0 else set()
    called = {(site.file, site.function) for site in skipped.stack}
    for one in compiled.compilations if compiled is not None and not known else ():
        if one.site is not None and (one.site.file, one.site.function) in called:
            known.add(one.frame)
    found: Bools = np.isin(frame, sorted(known)) & (frame >= 0) if known else frame >= 0
    return found & facts.tree.outermost(found)


def _suspect(facts: Facts, calls: Bools, skipped: SkippedGraph | None) -> Iterator[Suspicion]:
    found = _launch_one_by_one(facts, calls & facts.measured)
    if not in_most_steps(facts, found.launches, 1):
        return
    spent = facts.steps.per_step_ns(int(length_ns(facts, found.start_ns, found.end_ns).sum()))
    why = f": {skipped.reason}" if skipped is not None else ""
    count = times_per_step(facts, found.launches)
    yield Suspicion(
        message=f"CUDA graphs were asked for, and the compiler goes without{why}. "
        f"{format_count(count, 'kernel')} a step {'is' if count == 1 else 'are'} launched one by one, over "
        f"{format_time(spent)}.",
        fix=_advise(skipped),
        rows=found.launches,
        edit=_as_graphs(facts, found),
        places=Places.of_sites(reversed(skipped.stack)) if skipped is not None else Places(),
        confidence=0.95 if skipped is not None else 0.9,
        count=count,
        evidence={"launches_per_step": count, "launching_ns_per_step": spent},
    )


def _advise(skipped: SkippedGraph | None) -> str:
    if skipped is None:
        return _UNKNOWN_FIX
    return next((fix for words, fix in _FIXES.items() if re.search(words, skipped.reason)), _OTHER_FIX)


def _launch_one_by_one(facts: Facts, calls: Bools) -> _Launching:
    """Nothing where one of the calls launches a graph: then these warm up, or hold what cannot be in one."""
    events, tree = facts.trace.events, facts.tree
    launches = distinct(facts.launches.call[facts.launches.call >= 0])
    owner = tree.nearest_ancestor(calls, of=launches)
    launches, owner = launches[owner >= 0], owner[owner >= 0]
    graphs = facts.trace.where_name(lambda name: _GRAPH_LAUNCH.match(name) is not None)
    if graphs[launches].any():
        launches, owner = launches[:0], owner[:0]
    counts = np.bincount(owner, minlength=len(events))
    several = counts[owner] >= _FEWEST_LAUNCHES
    launches, owner = launches[several], owner[several]
    by_call = distinct(owner)
    place = np.searchsorted(by_call, owner)
    start_ns, end_ns = tree.end_ns[by_call].copy(), events.start_ns[by_call].copy()
    np.minimum.at(start_ns, place, events.start_ns[launches])
    np.maximum.at(end_ns, place, tree.end_ns[launches])
    return _Launching(launches, start_ns, end_ns)


def _as_graphs(facts: Facts, found: _Launching) -> Edit:
    """Each call takes one launch."""
    one = int(np.median(facts.trace.events.duration_ns[found.launches]))
    work = facts.launches.work[among(facts.launches.call, found.launches)]
    together = shrink_spans(found.start_ns, found.end_ns, one, _UNCERTAINTY)
    return combine([together, closer_in_a_graph(facts, work, _UNCERTAINTY)])
