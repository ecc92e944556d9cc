"""A line that the compiler cannot trace cuts a compiled function in two.

What it detects
Graph breaks in the program's own functions, as `torch.compile` counted them, each with its line and the compiler's
reason. profkit records them. In other recordings Python frames show them: the rest of a function after a break is named
after its line (`torch_dynamo_resume_in_forward_at_17`). Breaks that the program asks for (`torch._dynamo.graph_break`,
`torch.compiler.disable`) are not reported. The rule also reports functions that the compiler gave up, as it does at a
break in a loop, if the line it stopped at runs in the recorded steps; in other recordings, functions that were called
to be compiled, ran no compiled code, and read numbers.

Why is this bad?
The code before and after the line becomes two graphs. Nothing is fused across the line, intermediate results go through
memory, and each call enters compiled code twice, checking guards and passing arguments each time, in the backward pass
as well. Reading a number also makes the host wait for a GPU.

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
The step is replayed without entering the regions that begin after the line: without the lookup of the guards, what a
region does before and after its own work, and the stretch since the last operator of the graph before, if that stretch
is short and only reads a number. A longer stretch holds work of the line itself, which stays. Fusing across the line
would save more, which is not counted. A break that no recorded step passed has no price. In a function that was given
up, the reads and their waits vanish, and so do elementwise operators, sums and normalisations that follow another of
these, because the compiler would have fused them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from profkit.derive.families import ELEMENTWISE, operators_of
from profkit.patterns import (
    Places,
    backward_of,
    costliest_lines,
    each_step,
    in_most_steps,
    length_ns,
    spent_ns,
    times_a_step,
    times_per_step,
)
from profkit.patterns.compiling import COMPILED_REGION, RESUMED, frame_of_regions, has_compiler_events
from profkit.patterns.places.events import enclosing_function
from profkit.patterns.places.frames import is_library, parse_frame
from profkit.rules.base import CallSite, CannotLook, Facts, Kind, Location, Suspicion, Suspicions, format_time, rule
from profkit.run.directory import Compilation, GraphBreak
from profkit.savings import Edit, combine, drop_operators, leave_out, remove, shrink, shrink_spans, unblock
from profkit.trace import Category, Int64s, Rows, distinct

_ASKED_FOR = re.compile(r"torch\._dynamo\.graph_break\(\)|_?dynamo\.disable|compiler\.disable", re.IGNORECASE)
_LOOKUP = "TorchDynamo Cache Lookup"
_WRAPPERS = (
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
    "CompiledFunction",
    "CompiledFunctionBackward",
    "autograd::engine::evaluate_function: CompiledFunctionBackward",
)
"""What a region does besides its own work: ``runtime_wrappers.py`` and the bytecode around a compiled graph."""
_RUNS = (Category.OPERATOR, Category.COMPILED_CODE)
"""A compiled graph may contain no operator at all; then its call shows when it works."""
_READS = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
_LONGEST_WAY_NS = 200_000
"""Leaving compiled code, reading a number and entering compiled code again takes Python some tens of microseconds."""
_UNCERTAINTY = 0.5
"""Part of the cost of an entry stays, as the single region has all arguments and guards. Fusing saves more."""
_ASKED = re.compile(r"^nn\.Module: OptimizedModule_\d+$|torch/_dynamo/eval_frame\.py\(\d+\): compile_wrapper$")
"""Python frames around every call of a compiled module or, since PyTorch 2.8, of a compiled function."""
_READS_A_NUMBER = re.compile(r"Tensor\.item\(\)|data-dependent")
_FUSIBLE = frozenset(
    (
        "amax",
        "amin",
        "batch_norm",
        "group_norm",
        "layer_norm",
        "log_softmax",
        "max",
        "mean",
        "min",
        "native_layer_norm",
        "rms_norm",
        "softmax",
        "sum",
    )
)
"""Besides elementwise operators, Inductor fuses these into one kernel with what precedes them."""
_ITEM = r"\.item\(\)|Tensor\.item|_local_scalar_dense"
_FIXES = {
    _ITEM: "Keep the number a tensor: use `torch.where`, `clamp` or a product with a mask instead of Python's `if` and "
    "`min`. If it has to be a number, set `torch._dynamo.config.capture_scalar_outputs = True`.",
    r"\bprint\b|\blogg|\bwarn": "Move the message out of the compiled function, or name the function that prints in "
    "`torch._dynamo.config.reorderable_logging_functions`.",
    r"data-dependent|control flow": "Replace the branch with tensor operations: `torch.where`, or `torch.cond` if both "
    "sides are expensive.",
}
"""By the compiler's reason."""
_OTHER_FIX = "Move what the compiler cannot trace out of the compiled function, or write it with tensor operations."
_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
"""Since PyTorch 2.7 a reason consists of a title, an explanation and hints; before, it was a single line."""
_MOST_TEXT = 160
"""The compiler's explanation is one part of a sentence that must stay readable."""


@rule(Kind.FAULT)
def graph_break(facts: Facts) -> Suspicions:
    """One finding for each line."""
    compiled = facts.run.compiled
    if facts.run.torch is None:
        if not (facts.trace.events.category == Category.PYTHON).any():
            raise CannotLook("graph breaks show in profkit's own recordings and in Python frames (with_stack=True)")
        yield from _resumed(facts)
        yield from _asked_and_uncompiled(facts)
    elif compiled is not None:
        for breaks in _by_line(compiled.breaks):
            yield _broken(facts, breaks, compiled.compilations)
        for given_up in _given_up(compiled.compilations):
            yield from _run_uncompiled(facts, given_up)


def _resumed(facts: Facts) -> Suspicions:
    """Regions that run the rest of a function, by the line in the name of their Python frame."""
    names, codes = facts.trace.names, facts.trace.events.name_code
    frames = facts.measured_rows(facts.trace.matching(RESUMED))
    around = facts.tree.nearest_ancestor(frame_of_regions(facts) >= 0, of=frames)
    for code in distinct(codes[frames]):
        regions = distinct(around[(codes[frames] == code) & (around >= 0)].astype(np.int64))
        frame, resumed = parse_frame(names[code]), RESUMED.search(names[code])
        if frame and resumed and not is_library(frame[0]) and in_most_steps(facts, regions):
            places = Places(Location(frame[0], int(resumed[2]), resumed[1]))
            fix = f"{_OTHER_FIX} `TORCH_LOGS=graph_breaks` says why it stops here."
            yield _cut_here(facts, regions, "", fix, places)


def _asked_and_uncompiled(facts: Facts) -> Suspicions:
    """Calls of functions to be compiled that read numbers and run no compiled code in any step."""
    inside, rows = facts.tree.under(facts.trace.matching(_ASKED)), facts.operators.rows
    reads = facts.measured_rows(facts.tree.outermost(facts.trace.named(*_READS)) & inside)
    function = enclosing_function(facts, reads)
    if function is not None and in_most_steps(facts, reads) and not has_compiler_events(facts):
        reason = "most likely it reads a number of a tensor in a loop"
        yield _uncompiled(facts, reason, Places(), rows[(inside & facts.measured)[rows]], reads, function.function)


def _given_up(compilations: Sequence[Compilation]) -> list[Compilation]:
    """The last attempt at each function that has no compiled code at all."""
    compiled = {one.frame for one in compilations if not one.failure}
    found = {one.frame: one for one in compilations if one.failure and one.site is not None}
    return [one for frame, one in found.items() if frame not in compiled and not _ASKED_FOR.search(one.failure)]


def _run_uncompiled(facts: Facts, given_up: Compilation) -> Suspicions:
    """What the function runs in the measured steps, if it reaches the line that the compiler stopped at."""
    site, failed_at, rows = given_up.site, given_up.failed_at, facts.operators.rows
    assert site is not None, "see _given_up"
    here = {
        code: one.line
        for code, one in enumerate(facts.callsites)
        if one.file == site.file and one.function.rpartition(".")[2] == site.function
    }
    rows = rows[facts.measured[rows] & np.isin(facts.lines.site[rows], [*here])]
    reads = stopped = rows[facts.trace.named(*_READS)[rows]]
    if failed_at is not None:
        codes = [code for code, line in here.items() if line == failed_at.line]
        stopped = rows[np.isin(facts.lines.site[rows], codes)]
    elif not _READS_A_NUMBER.search(given_up.failure):
        return
    if in_most_steps(facts, stopped):
        reason = _first_line(given_up.failure)
        yield _uncompiled(facts, reason, costliest_lines(facts, stopped), rows, reads, site.function)


def _uncompiled(facts: Facts, reason: str, places: Places, rows: Rows, reads: Rows, function: str) -> Suspicion:
    fused = _fused_into_others(facts, rows)
    waits = facts.waits.rows[facts.tree.under(facts.trace.mask_of(reads))[facts.waits.rows]]
    count = times_per_step(facts, rows)
    return Suspicion(
        message=f"The compiler gave up on `{function}` ({reason}). {each_step(count, 'operator', 'runs', 'run')} "
        f"uncompiled; the compiler would fuse {times_per_step(facts, fused):,} of them into another kernel.",
        fix=_fix_for(reason, _FIXES[_ITEM]),
        rows=reads if reads.size else rows,
        edit=combine(
            [
                drop_operators(facts, reads, _UNCERTAINTY),
                unblock(waits, _UNCERTAINTY),
                leave_out(facts, fused, np.zeros(len(fused), dtype=np.int64), 0.0, _UNCERTAINTY, prepared_ns=0),
            ]
        ),
        count=count,
        confidence=0.95 if places.location else 0.7,
        places=places,
        evidence={"reason": reason, "operators_per_step": count},
    )


def _fused_into_others(facts: Facts, rows: Rows) -> Rows:
    """The operators that the compiler would fuse with the one before."""
    kept = rows[~facts.trace.named(*_READS)[rows]]
    is_fusible = operators_of(facts.trace, ELEMENTWISE, _FUSIBLE)[kept]
    fused: Rows = kept[1:][is_fusible[1:] & is_fusible[:-1] & (np.diff(facts.step_of(kept)) == 0)]
    return fused


def _by_line(breaks: Sequence[GraphBreak]) -> list[list[GraphBreak]]:
    """The breaks at each line of the user's: a function compiled both alone and inside another breaks twice."""
    found: dict[tuple[str, int], list[GraphBreak]] = {}
    for one in breaks:
        if not _ASKED_FOR.search(one.reason.partition("\n")[0]):
            site = _user_stack(one)[-1]
            found.setdefault((site.file, site.line), []).append(one)
    return list(found.values())


def _user_stack(one: GraphBreak) -> tuple[CallSite, ...]:
    """The stack without the library's frames at its end."""
    return one.stack[: len(one.stack) - one.library_frames]


def _broken(facts: Facts, breaks: list[GraphBreak], compilations: Sequence[Compilation]) -> Suspicion:
    reason, regions = _first_line(breaks[0].reason), _entered(facts, breaks, compilations)
    places = Places.of_sites(reversed(_user_stack(breaks[0])))
    found = _cut_here(facts, regions, reason, _fix_for(reason, _OTHER_FIX), places)
    return found if regions.size else structs.replace(found, count=sum(one.count for one in breaks))


def _entered(facts: Facts, breaks: Sequence[GraphBreak], compilations: Sequence[Compilation]) -> Rows:
    """The measured regions that these breaks cause: the rest of each function after its line, and the functions called
    on the line, which would otherwise be part of their caller's region."""
    resumed = {(site.file, site.line) for one in breaks for site in one.stack}
    called = {(site.file, site.function) for one in breaks for site in one.stack[1:]}
    frames = set()
    for compilation in compilations:
        if (site := compilation.site) is not None:
            match = RESUMED.match(site.function)
            if (match and (site.file, int(match[2])) in resumed) or (site.file, site.function) in called:
                frames.add(compilation.frame)
    of = frame_of_regions(facts)
    return facts.measured_rows(np.isin(of, sorted(frames)) & (of >= 0))


def _cut_here(facts: Facts, regions: Rows, reason: str, fix: str, places: Places) -> Suspicion:
    edit, evidence = None, dict[str, float | int | str]({"reason": reason} if reason else {})
    if regions.size:
        edit = _without_entries(facts, regions)
        whole = (spent_ns(facts, edit.rows) - edit.kept_ns).sum() + (edit.span_end_ns - edit.span_start_ns).sum()
        spent = facts.steps.per_step_ns(whole)
        known = f", {times_a_step(facts, regions)}: entering it takes {format_time(spent)}."
        evidence |= {"entries_per_step": times_per_step(facts, regions), "entering_ns_per_step": spent}
    elif has_compiler_events(facts):
        known = "; no recorded step entered it."
    else:
        known = "; what that costs was not recorded."
    why = f" ({reason})" if reason else ""
    return Suspicion(
        message=f"The compiler stops here{why} and continues after the line with another graph{known}",
        fix=fix,
        rows=regions,
        edit=edit,
        confidence=0.95 if reason else 0.9,
        places=places,
        evidence=evidence,
    )


def _fix_for(reason: str, otherwise: str) -> str:
    return next((fix for words, fix in _FIXES.items() if re.search(words, reason)), otherwise)


def _first_line(reason: str) -> str:
    """The compiler's explanation in one line."""
    explained = _EXPLANATION.search(reason)
    text = (explained[1] if explained else reason.partition("\n")[0]).strip().rstrip(".")
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1] + "…"


def _without_entries(facts: Facts, regions: Rows) -> Edit:
    """The lookups vanish, and of the regions and their backward passes only their own work stays."""
    entries, lookups = np.concatenate([regions, backward_of(facts, regions)]), _lookups_of(facts, regions)
    kept = shrink(entries, length_ns(facts, *_own_work(facts, entries)), _UNCERTAINTY)
    return combine([remove(lookups, uncertainty=_UNCERTAINTY), kept, _ways_to(facts, lookups)])


def _ways_to(facts: Facts, lookups: Rows) -> Edit:
    """From the last operator before each lookup to the lookup, within one run of the function around both."""
    events, tree = facts.trace.events, facts.tree
    lookups = np.sort(lookups[events.lane[lookups] == facts.steps.main_lane])
    around = tree.nearest_ancestor(frame_of_regions(facts) >= 0)
    working = facts.trace.in_categories(*_RUNS) & ~facts.trace.named(*_READS, *_WRAPPERS, _LOOKUP)
    work = np.flatnonzero(working & (events.lane == facts.steps.main_lane) & (around >= 0))
    work = work[np.argsort(tree.end_ns[work], kind="stable")]
    if not work.size:
        return Edit()
    before = np.searchsorted(tree.end_ns[work], events.start_ns[lookups], side="right") - 1
    last = work[before.clip(min=0)]
    start_ns, end_ns = tree.end_ns[last], events.start_ns[lookups]
    way = (before >= 0) & (around[last] == around[lookups]) & (end_ns - start_ns <= _LONGEST_WAY_NS)
    return shrink_spans(start_ns[way], end_ns[way], 0, _UNCERTAINTY)


def _lookups_of(facts: Facts, regions: Rows) -> Rows:
    """The lookup right before each region, with no other region of its thread between."""
    events, lookups = facts.trace.events, facts.trace.named(_LOOKUP)
    rows = np.flatnonzero(lookups | (frame_of_regions(facts) >= 0))
    rows = rows[np.lexsort((events.start_ns[rows], events.lane[rows]))]
    before, after = rows[:-1], rows[1:]
    own: Rows = before[lookups[before] & np.isin(after, regions) & (events.lane[before] == events.lane[after])]
    return own


def _own_work(facts: Facts, entries: Rows) -> tuple[Int64s, Int64s]:
    """Per entry, from the start of the first to the end of the last thing in it that is the program's work. Empty if
    there is none."""
    events, tree = facts.trace.events, facts.tree
    wrapping = facts.trace.where_name(lambda name: name in _WRAPPERS or name.startswith(COMPILED_REGION))
    owner = tree.nearest_ancestor(facts.trace.mask_of(entries))
    work = np.flatnonzero(facts.trace.in_categories(*_RUNS) & ~wrapping & (owner >= 0))
    first, last = events.start_ns + 0, events.start_ns + 0
    first[entries] = np.iinfo(np.int64).max
    np.minimum.at(first, owner[work], events.start_ns[work])
    np.maximum.at(last, owner[work], tree.end_ns[work])
    return np.minimum(first[entries], last[entries]), last[entries]
