"""CUDA graphs were asked for, and the compiler goes without them.

What it detects
Compiled functions for which `mode="reduce-overhead"`, or the option `triton.cudagraphs`, asked for CUDA graphs, but
which still launch their kernels one by one. profkit's own recordings hold the compiler's reason with its line. In other
recordings, Python frames show that the manager of the graphs is called and launches none in any step; without frames,
such a function looks like one without graphs. The first two calls, which warm up and record, do not count, nor does a
function that launches a graph in any call.

Why is this bad?
Graphs are asked for because the launches take longer than the kernels. PyTorch warns only once, among everything that a
compilation prints, and each call continues to pay for every launch.

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
The step is replayed without the time between the first and the last launch of each call of the function, and with the
shorter gaps of a graph between its kernels. Copying inputs to where the graph reads them is not included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from profkit.patterns import Places, each_step, in_most_steps, length_ns, times_per_step
from profkit.patterns.compiling import frame_of_regions, has_compiler_events
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_time, rule
from profkit.run.directory import Compilation, SkippedGraph
from profkit.savings import combine, shrink_spans
from profkit.savings.pricing import closer_in_a_graph
from profkit.trace import Bools, Category, Rows, among, distinct

_MANAGER = re.compile(r"^torch/_inductor/cudagraph_trees\.py\(\d+\): (deferred_cudagraphify|run|_run)$")
"""Every call of a function with graphs asked for goes through one of these, whether it launches a graph or not."""
_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
_FEWEST_LAUNCHES = 2
"""A graph of one kernel gives nothing back."""
_UNCERTAINTY = 0.3
_FIXES = {
    "mutat": "Return the new value instead of writing it into an input, and copy it there outside the compiled "
    "function. Or keep what is written in one place: a buffer of the module, or a tensor marked with "
    "`torch._dynamo.mark_static_address`.",
    r"cpu|multiple devices": "Make the tensor on the GPU (`device=x.device`), or keep it out of the compiled function.",
    r"dynamic|re-?record": "Call the function with a few fixed shapes, padded where necessary, and with inputs that "
    "stay in one place. Each new shape or place needs another graph.",
}
"""By the compiler's reason (``torch/_inductor/cudagraph_utils.py``)."""
_OTHER_FIX = "Keep what the reason names out of the compiled function."
_UNKNOWN_FIX = (
    "The warning that PyTorch printed at the first call says why (`TORCH_LOGS=cudagraphs`). Most often the "
    "function writes into an input: return the new value, and copy it outside."
)


@rule(Kind.FAULT, Need.DEVICE)
def cudagraphs_skipped(facts: Facts) -> Suspicions:
    """One finding for each reason; a single one if only frames show it."""
    compiled = facts.run.compiled
    if not has_compiler_events(facts):
        return
    if facts.run.torch is None:
        frames = facts.trace.events.category == Category.PYTHON
        if not frames.any():
            raise CannotLook("only Python frames show whether CUDA graphs were asked for (with_stack=True)")
        yield from _suspect(facts, facts.tree.outermost(frames & facts.trace.matching(_MANAGER)), None)
    elif compiled is not None and compiled.skipped is None:
        raise CannotLook("whether CUDA graphs were asked for was not recorded (run the program under profkit again)")
    elif compiled is not None:
        for skipped in compiled.skipped or ():
            yield from _suspect(facts, _regions_of(facts, skipped, compiled.compilations), skipped)


def _regions_of(facts: Facts, skipped: SkippedGraph, compilations: Sequence[Compilation]) -> Bools:
    """The runs of the compiled functions that this reason is about; of all if it does not say."""
    frame, known = frame_of_regions(facts), {skipped.frame}
    if skipped.frame < 0:
        called = {(site.file, site.function) for site in skipped.stack}
        known = {one.frame for one in compilations if one.site and (one.site.file, one.site.function) in called}
    found: Bools = np.isin(frame, sorted(known)) & (frame >= 0) if known else frame >= 0
    return found & facts.tree.outermost(found)


def _suspect(facts: Facts, calls: Bools, skipped: SkippedGraph | None) -> Suspicions:
    launches, owner = _launch_one_by_one(facts, calls & facts.measured)
    if not in_most_steps(facts, launches):
        return
    events, tree = facts.trace.events, facts.tree
    of_calls, place = np.unique(owner, return_inverse=True)
    start_ns, end_ns = tree.end_ns[of_calls].copy(), events.start_ns[of_calls].copy()
    np.minimum.at(start_ns, place, events.start_ns[launches])
    np.maximum.at(end_ns, place, tree.end_ns[launches])
    work = facts.launches.work[among(facts.launches.call, launches)]
    together = shrink_spans(start_ns, end_ns, int(np.median(events.duration_ns[launches])), _UNCERTAINTY)
    count, spent = times_per_step(facts, launches), facts.steps.per_step_ns(length_ns(facts, start_ns, end_ns).sum())
    fix = _UNKNOWN_FIX
    if skipped is not None:
        fix = next((fix for words, fix in _FIXES.items() if re.search(words, skipped.reason)), _OTHER_FIX)
    yield Suspicion(
        message="The compiler does without the CUDA graphs that were asked "
        f"for{f': {skipped.reason}' if skipped else ''}. {each_step(count, 'kernel', 'is', 'are')} launched one "
        f"by one, over {format_time(spent)}.",
        fix=fix,
        rows=launches,
        edit=combine([together, closer_in_a_graph(facts, work, _UNCERTAINTY)]),
        places=Places.of_sites(reversed(skipped.stack)) if skipped else Places(),
        confidence=0.95 if skipped else 0.9,
        count=count,
        evidence={"launches_per_step": count, "launching_ns_per_step": spent},
    )


def _launch_one_by_one(facts: Facts, calls: Bools) -> tuple[Rows, Rows]:
    """The launches in calls that make several, and the call of each. None if one of the calls launches a graph: then
    these warm up, or hold what cannot be in one."""
    launches = distinct(facts.launches.call[facts.launches.call >= 0])
    owner = facts.tree.nearest_ancestor(calls, of=launches)
    launches, owner = launches[owner >= 0], owner[owner >= 0]
    several = np.bincount(owner, minlength=len(facts.trace.events))[owner] >= _FEWEST_LAUNCHES
    if facts.trace.where_name(lambda name: _GRAPH_LAUNCH.match(name) is not None)[launches].any():
        several[:] = False
    return launches[several], owner[several]
