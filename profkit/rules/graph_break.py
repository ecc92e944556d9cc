"""A line that the compiler cannot trace cuts a compiled function in two.

What it detects
The graph breaks that `torch.compile` itself counted in the program's own functions, each with the line that it stopped
at and its reason. profkit's own recordings hold them. In others, Python frames tell: the rest of a function behind a
break is named after its line (`torch_dynamo_resume_in_forward_at_17`). Breaks that the program asks for
(`torch._dynamo.graph_break`, `torch.compiler.disable`) are no finding. And functions that the compiler gave up, as it
does at a break in a loop, if the line that it stopped at runs in the recorded steps: in recordings from elsewhere those
that were called to be compiled, ran no compiled code, and read numbers.

Why is this bad?
What comes before and after the line are graphs of their own: nothing is fused across it, intermediate results go
through memory, and each call enters the compiled code twice, where guards are checked and arguments are handed over
again, in the backward pass as well. A read of a number makes a GPU's host wait besides.

Example
    @torch.compile
    def clip(x):
        norm = x.norm().item()
        return x * min(1.0, 10.0 / norm)

Use instead
    @torch.compile
    def clip(x):
        norm = x.norm()
        return x * torch.clamp(10.0 / norm, max=1.0)

How the saving is estimated
The step is replayed without the entries into the regions that begin behind the line: the look-up of the guards, what a
region takes before and after its own work, and the way there from the last operator of the graph before, as far as
nothing but a number is read on it and it is short. Longer ways hold work of the line's own, which stays. What fusing
across the line would save is not in the estimate, so the real saving is larger. A break that no recorded step ran over
has no price. In a function that was given up, the reads and their waits vanish, and so do elementwise operators, sums
and normalisations that follow another of them, as the compiler would have made one kernel of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, operators_of
from profkit.evidence.compiling import COMPILED_REGION, RESUMED, frame_of_regions, has_compiler_events
from profkit.evidence.frames import is_library, parse_frame
from profkit.evidence.frequency import in_most_steps, times_per_step
from profkit.evidence.places import enclosing_function
from profkit.evidence.program import backward_of, length_ns, spent_ns
from profkit.findings import Kind, Location
from profkit.rules.base import CannotLook, Suspicion, rule
from profkit.ruling.places import Places, costliest_lines
from profkit.ruling.pricing import drop_operators, leave_out
from profkit.run import CallSite, Compilation, GraphBreak
from profkit.savings.edits import Edit, combine, remove, shrink, shrink_spans, unblock
from profkit.trace.events import Bools, Category, Int64s, Rows
from profkit.trace.values import distinct
from profkit.units import format_count, format_time

_ASKED_FOR = re.compile(r"torch\._dynamo\.graph_break\(\)|_?dynamo\.disable|compiler\.disable", re.IGNORECASE)
_LOOKUP = "TorchDynamo Cache Lookup"
_WRAPPERS = ("Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue", "CompiledFunction",
             "CompiledFunctionBackward", "autograd::engine::evaluate_function: CompiledFunctionBackward")  # fmt: skip
"""What a region does besides its own work: ``runtime_wrappers.py`` and the bytecode around a compiled graph."""
_RUNS = (Category.OPERATOR, Category.COMPILED_CODE)
"""A compiled graph may hold no operator at all: what it does is then told by its call."""
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
_LONGEST_WAY_NS = 200_000
"""Leaving compiled code, reading a number and entering it again takes Python some tens of microseconds."""
_UNCERTAINTY = 0.5
"""Of what an entry takes a part stays, as the one region has all arguments and guards; what is fused comes on top."""
_ASKED = re.compile(r"^nn\.Module: OptimizedModule_\d+$|torch/_dynamo/eval_frame\.py\(\d+\): compile_wrapper$")
"""What a call of a compiled module, or since PyTorch 2.8 of a compiled function, goes through in Python."""
_READS_A_NUMBER = re.compile(r"Tensor\.item\(\)|data-dependent")
_FUSIBLE = frozenset(("amax", "amin", "batch_norm", "group_norm", "layer_norm", "log_softmax", "max", "mean", "min",
                      "native_layer_norm", "rms_norm", "softmax", "sum"))  # fmt: skip
"""Besides elementwise operators what Inductor generates a kernel for, with what comes before it in the same one."""
_ITEM = r"\.item\(\)|Tensor\.item|_local_scalar_dense"
_FIXES = {
    _ITEM: "Keep the number a tensor: `torch.where`, `clamp` or a product "
    "with a mask in the place of Python's `if` and `min`. Where it has to be a number, set "
    "`torch._dynamo.config.capture_scalar_outputs = True`.",
    r"\bprint\b|\blogg|\bwarn": "Move the message out of the compiled function, or name the function that prints in "
    "`torch._dynamo.config.reorderable_logging_functions`.",
    r"data-dependent|control flow": "Replace the branch by tensor operations: `torch.where`, or `torch.cond` where "
    "both sides are expensive.",
}
"""By what the compiler's reason says."""
_OTHER_FIX = "Move what the compiler cannot trace out of the compiled function, or write it with tensor operations."
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
"""Since PyTorch 2.7 a reason is a title, an explanation and hints; before, it was one line."""
_MOST_TEXT = 160


@rule(Kind.FAULT)
def graph_break(facts: Facts) -> Iterator[Suspicion]:
    """One finding for each line, the costliest first."""
    if facts.run.torch is None:
        yield from _by_frames(facts)
        return
    compiled = facts.run.compiled
    if compiled is None:
        return
    for together in _by_line(compiled.breaks):
        yield _suspect(facts, together, _entered(facts, together, compiled.compilations))
    for given_up in _given_up(compiled.compilations):
        yield from _run_uncompiled(facts, given_up)


def _by_frames(facts: Facts) -> Iterator[Suspicion]:
    """What the names of Python frames say, where nothing else was recorded."""
    if not (facts.trace.events.category == Category.PYTHON).any():
        raise CannotLook("graph breaks show in recordings that profkit made, and in Python frames (with_stack=True)")
    yield from _resumed(facts)
    yield from _asked_and_uncompiled(facts)


def _resumed(facts: Facts) -> Iterator[Suspicion]:
    """Regions that run the rest of a function, by the line that their frame is named after."""
    names = facts.trace.names
    frames = facts.measured_rows(facts.trace.matching(RESUMED))
    around = facts.tree.nearest_ancestor(frame_of_regions(facts) >= 0, of=frames)
    for code in distinct(facts.trace.events.name_code[frames]):
        regions = distinct(around[(facts.trace.events.name_code[frames] == code) & (around >= 0)].astype(np.int64))
        frame, resumed = parse_frame(names[code]), RESUMED.search(names[code])
        if frame is None or resumed is None or is_library(frame[0]) or not in_most_steps(facts, regions):
            continue
        edit = _without_entries(facts, regions)
        message, evidence = _describe(facts, regions, edit)
        yield Suspicion(
            message=f"The compiler stops here and goes on behind the line with another graph{message}",
            fix=f"{_OTHER_FIX} Why it stops here, `TORCH_LOGS=graph_breaks` says.",
            rows=regions,
            edit=edit,
            count=times_per_step(facts, regions),
            places=Places.of([Location(frame[0], int(resumed[2]), resumed[1])]),
            evidence=evidence,
        )


def _asked_and_uncompiled(facts: Facts) -> Iterator[Suspicion]:
    """Calls of functions to be compiled that run no compiled code in any step, though they read numbers."""
    asked = facts.trace.matching(_ASKED)
    asked &= facts.tree.outermost(asked)
    reads = facts.measured_rows(facts.tree.outermost(facts.trace.named(*_READS)) & facts.tree.under(asked))
    if has_compiler_events(facts) or not in_most_steps(facts, reads):
        return
    function = enclosing_function(facts, reads)
    inside = (facts.tree.under(asked) & facts.measured)[facts.operators.rows]
    if function is not None:
        reason = "it reads a number of a tensor in a loop, most likely"
        yield _uncompiled(facts, reason, Places(), facts.operators.rows[inside], reads, function.function)


def _given_up(compilations: Sequence[Compilation]) -> list[Compilation]:
    """The last of each function that has no compiled code at all."""
    compiled = {one.frame for one in compilations if not one.failure}
    found = {one.frame: one for one in compilations if one.failure and one.site is not None}
    return [one for frame, one in found.items() if frame not in compiled and not _ASKED_FOR.search(one.failure)]


def _run_uncompiled(facts: Facts, given_up: Compilation) -> Iterator[Suspicion]:
    """What the function runs in the measured steps, if it comes to the line that the compiler stopped at."""
    rows, site = facts.operators.rows, facts.lines.site
    here = np.array([one.file == given_up.site.file and one.function.rpartition(".")[2] == given_up.site.function
                     for one in facts.callsites] if given_up.site else [], dtype=bool)  # fmt: skip
    rows = rows[facts.measured[rows] & (site[rows] >= 0)]
    rows = rows[here[site[rows]]] if here.size else rows[:0]
    reads = rows[facts.trace.named(*_READS)[rows]]
    stopped = reads
    if given_up.failed_at is not None:
        lines = np.array([one.line for one in facts.callsites])
        stopped = rows[lines[site[rows]] == given_up.failed_at.line]
    elif not _READS_A_NUMBER.search(given_up.failure):
        return
    if in_most_steps(facts, stopped) and given_up.site is not None:
        reason = _first_line(given_up.failure)
        yield _uncompiled(facts, reason, costliest_lines(facts, stopped), rows, reads, given_up.site.function)


def _uncompiled(
    facts: Facts, reason: str, places: Places, rows: Rows, reads: Rows, function: str
) -> Suspicion:
    fused = _fused_into_others(facts, rows)
    waits = facts.waits.rows[facts.tree.under(facts.trace.mask_of(reads))[facts.waits.rows]]
    number = np.zeros(len(fused), dtype=np.int64)
    edit = combine([drop_operators(facts, reads, _UNCERTAINTY), unblock(waits, _UNCERTAINTY),
                    leave_out(facts, fused, number, 0.0, _UNCERTAINTY)])  # fmt: skip
    count = times_per_step(facts, rows)
    return Suspicion(
        message=f"`{function}` was to be compiled, and the compiler gave it up ({reason}): "
        f"{format_count(count, 'operator')} a step run uncompiled, {times_per_step(facts, fused):,} of which it would "
        "make part of another one's kernel.",
        fix=next((fix for words, fix in _FIXES.items() if re.search(words, reason)), _FIXES[_ITEM]),
        rows=reads if reads.size else rows,
        edit=edit,
        count=count,
        confidence=0.95 if places.location else 0.7,
        places=places,
        evidence={"reason": reason, "operators_per_step": count},
    )


def _fused_into_others(facts: Facts, rows: Rows) -> Rows:
    """Of the operators those that the compiler would make one kernel with the one before."""
    kept = rows[~facts.trace.named(*_READS)[rows]]
    is_fusible = operators_of(facts.trace, ELEMENTWISE, _FUSIBLE)[kept]
    follows = is_fusible[1:] & is_fusible[:-1] & (np.diff(facts.step_of(kept)) == 0)
    fused: Rows = kept[1:][follows]
    return fused


def _by_line(breaks: Sequence[GraphBreak]) -> list[list[GraphBreak]]:
    """Those at one line of the user's: a function that is compiled by itself and inside another breaks twice."""
    found: dict[tuple[str, int], list[GraphBreak]] = {}
    for one in breaks:
        if not _ASKED_FOR.search(one.reason.partition("\n")[0]):
            site = _user_stack(one)[-1]
            found.setdefault((site.file, site.line), []).append(one)
    return list(found.values())


def _user_stack(one: GraphBreak) -> tuple[CallSite, ...]:
    """The stack without the library's frames at its end."""
    return one.stack[: len(one.stack) - one.library_frames]


def _entered(facts: Facts, breaks: Sequence[GraphBreak], compilations: Sequence[Compilation]) -> Rows:
    """The regions in the measured steps that exist because of these breaks: what comes behind the lines that led to
    one, and the functions called there, which would otherwise be part of their caller's."""
    resumed = {(site.file, site.line) for one in breaks for site in one.stack}
    called = {(site.file, site.function) for one in breaks for site in one.stack[1:]}
    frames = set()
    for compilation in compilations:
        site = compilation.site
        if site is not None:
            match = RESUMED.match(site.function)
            behind = match is not None and (site.file, int(match[2])) in resumed
            if behind or (site.file, site.function) in called:
                frames.add(compilation.frame)
    of = frame_of_regions(facts)
    return facts.measured_rows(np.isin(of, sorted(frames)) & (of >= 0))


def _suspect(facts: Facts, breaks: list[GraphBreak], regions: Rows) -> Suspicion:
    reason = _first_line(breaks[0].reason)
    edit = _without_entries(facts, regions) if regions.size else None
    message, evidence = _describe(facts, regions, edit)
    return Suspicion(
        message=f"The compiler stops here ({reason}) and goes on behind the line with another graph{message}",
        fix=next((fix for words, fix in _FIXES.items() if re.search(words, reason)), _OTHER_FIX),
        rows=regions,
        edit=edit,
        confidence=0.95,
        count=times_per_step(facts, regions) if regions.size else sum(one.count for one in breaks),
        places=Places.of_sites(reversed(_user_stack(breaks[0]))),
        evidence={"reason": reason, **evidence},
    )


def _first_line(reason: str) -> str:
    """The compiler's explanation, in one line."""
    explained = _EXPLANATION.search(reason)
    text = explained[1] if explained else reason.partition("\n")[0]
    text = text.strip().rstrip(".")
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _describe(facts: Facts, regions: Rows, edit: Edit | None) -> tuple[str, dict[str, int]]:
    """The end of the message, and the figures in it."""
    if edit is None:
        seen = "; no recorded step entered it" if has_compiler_events(facts) else "; what that costs was not recorded"
        return f"{seen}.", {}
    whole = (spent_ns(facts, edit.rows) - edit.kept_ns).sum() + (edit.span_end_ns - edit.span_start_ns).sum()
    spent = facts.steps.per_step_ns(whole)
    entries = times_per_step(facts, regions)
    times = format_count(entries, "time")
    return f", {times} a step: entering it takes {format_time(spent)}.", {
        "entries_per_step": entries,
        "entering_ns_per_step": spent,
    }


def _without_entries(facts: Facts, regions: Rows) -> Edit:
    """The look-ups vanish, and of the regions and their backward passes only the work itself is kept."""
    nodes = backward_of(facts, regions)
    entries = np.concatenate([regions, nodes])
    start_ns, end_ns = _own_work(facts, entries)
    kept = shrink(entries, length_ns(facts, start_ns, end_ns), _UNCERTAINTY)
    return combine([remove(_lookups_of(facts, regions), uncertainty=_UNCERTAINTY), kept, _ways_to(facts, regions)])


def _ways_to(facts: Facts, regions: Rows) -> Edit:
    """From the last operator before each region, within the run of the function around both, to the look-up."""
    events, tree = facts.trace.events, facts.tree
    lookups = np.sort(_lookups_of(facts, regions))
    lookups = lookups[events.lane[lookups] == facts.steps.main_lane]
    around = tree.nearest_ancestor(frame_of_regions(facts) >= 0)
    work = np.flatnonzero(
        facts.trace.in_categories(*_RUNS) & (events.lane == facts.steps.main_lane) & (around >= 0)
        & ~facts.trace.named(*_READS, *_WRAPPERS, _LOOKUP)
    )  # fmt: skip
    work = work[np.argsort(tree.end_ns[work], kind="stable")]
    if not (work.size and lookups.size):
        return Edit()
    before = np.searchsorted(tree.end_ns[work], events.start_ns[lookups], side="right") - 1
    last = work[before.clip(min=0)]
    start_ns, end_ns = tree.end_ns[last], events.start_ns[lookups]
    way = (before >= 0) & (around[last] == around[lookups]) & (end_ns - start_ns <= _LONGEST_WAY_NS)
    return shrink_spans(start_ns[way], end_ns[way], 0, _UNCERTAINTY)


def _lookups_of(facts: Facts, regions: Rows) -> Rows:
    """For each region the look-up that came last before it, with no other region between."""
    events = facts.trace.events
    found = []
    for lane in np.unique(events.lane[regions]):
        lookups = np.flatnonzero(facts.trace.named(_LOOKUP) & (events.lane == lane))
        everywhere = np.flatnonzero((frame_of_regions(facts) >= 0) & (events.lane == lane))
        if not lookups.size:
            continue
        here = regions[events.lane[regions] == lane]
        before = np.searchsorted(events.start_ns[lookups], events.start_ns[here]) - 1
        previous = np.searchsorted(events.start_ns[everywhere], events.start_ns[here]) - 1
        lookup = lookups[before.clip(min=0)]
        own = (before >= 0) & (
            (previous < 0) | (events.start_ns[everywhere[previous.clip(min=0)]] < events.start_ns[lookup])
        )
        found.append(lookup[own])
    return np.concatenate(found) if found else regions[:0]


def _own_work(facts: Facts, entries: Rows) -> tuple[Int64s, Int64s]:
    """From the start of the first to the end of the last thing in each that is work of the program; nothing where
    there is none."""
    events, tree = facts.trace.events, facts.tree
    inside = facts.trace.mask_of(entries)
    regions = facts.trace.where_name(lambda name: name.startswith(COMPILED_REGION))
    wrapping: Bools = facts.trace.named(*_WRAPPERS) | regions
    owner = tree.nearest_ancestor(inside)
    work = np.flatnonzero(facts.trace.in_categories(*_RUNS) & ~wrapping & (owner >= 0))
    first, last = events.start_ns + 0, events.start_ns + 0
    first[entries] = np.iinfo(np.int64).max
    np.minimum.at(first, owner[work], events.start_ns[work])
    np.maximum.at(last, owner[work], tree.end_ns[work])
    return np.minimum(first[entries], last[entries]), last[entries]
