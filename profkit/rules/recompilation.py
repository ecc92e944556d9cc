"""The same function is compiled again and again, because each call differs in what the compiler took for constant.

What it detects
Functions of the program that `torch.compile` compiled at least four times for one reason, a guard that fails each time
with another number. The finding is at the function; if an attribute varies, where the function reads it. The first time
or two are how the compiler learns which sizes vary, and a mode or a type that changes once is another reason: neither
is a finding. Recordings made elsewhere hold the events of the compiler's work, but not its records: there one function
has to be compiled in at least three steps and in most of them, and the guard that fails is unknown.

Why is this bad?
A compilation takes a second or so, as long as thousands of steps, and each further one makes every call check more
guards. After eight (`torch._dynamo.config.recompile_limit`) the compiler gives up, and new sizes run uncompiled; one
line in the log says so.

Example
    encode = torch.compile(model, dynamic=False)
    for tokens in loader:  # of any length
        encode(tokens)

Use instead
    encode = torch.compile(model)
    for tokens in loader:
        torch._dynamo.mark_dynamic(tokens, 1)
        encode(tokens)

How the saving is estimated
If most recorded steps compile, the steps are replayed without the compiler's work. Otherwise the loss stops by itself:
the severity comes from the share of the process's time so far that went into the repeated compilations, low from half a
percent, medium from a tenth. What is lost because the compiler gave up is not included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.patterns import Places, in_most_steps
from profkit.patterns.compiling import RESUMED, compilations, function_run_next
from profkit.patterns.places.frames import is_library
from profkit.rules.base import (
    HIGH_FROM,
    LOW_FROM,
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Location,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    rule,
)
from profkit.run.directory import Compilation
from profkit.savings import remove
from profkit.trace import Rows, distinct

_MOST_TO_LEARN = 2
"""With `dynamic=None` the first other size makes that dimension dynamic, and a size of 0 or 1 is always special."""
_NUMBER = re.compile(r"\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b")
_OF_COMPILATION = re.compile(r"^\d+/\d+: ")
_UNCERTAINTY = 0.1
_LIMIT = re.compile(r"(recompile|cache_size)[ _]limit", re.IGNORECASE)
_MOST_TEXT = 160
_READ = re.compile(r'^  File "(.+)", line (\d{1,9}), in (.+)\n    (.*)', re.MULTILINE)
"""The compiler shows the lines that led to the value that the guard checks."""
_OF_ATTRIBUTE = re.compile(r"(tensor ')?\w[^\s=]*\.\w")
_FIXES = {
    r"size mismatch|stride mismatch|\.size\(|\.shape": "Let the compiler know that the size varies: "
    "`torch._dynamo.mark_dynamic(tensor, dim)` before the call, or `torch.compile(..., dynamic=True)`; or pad to a few "
    "sizes.",
    r"==": "Pass the number that changes as a tensor, `torch.tensor(value)`, or compile with `dynamic=True`: Python's "
    "numbers are constants to the compiler.",
}
"""By the guard that failed."""
_OTHER_FIX = "Keep what the guard checks the same from call to call, or pass it as a tensor."


class _Repeated(Struct, frozen=True):
    """A function's compilations for one reason, with those of its parts after graph breaks; ``gave_up`` says that the
    compiler refuses further ones."""

    frames: tuple[int, ...]
    site: CallSite
    guard: str
    reason: str
    times: int
    lost_ns: int
    gave_up: bool


@rule(Kind.FAULT)
def recompilation(facts: Facts) -> Suspicions:
    """One finding for each function and guard."""
    if facts.run.torch is None:
        yield from _of_events(facts)
    if facts.run.compiled is not None:
        repeated = _join_resumed(_repeated(facts.run.compiled.compilations))
        for one in repeated:
            yield _suspect(one, _in_steps(facts, one, len(repeated)), facts.run.compiled.elapsed_ns)


def _of_events(facts: Facts) -> Suspicions:
    """The compiler's work in the steps of a recording that has no records of it."""
    rows, frame = compilations(facts)
    frame = np.where(frame >= 0, frame, function_run_next(facts, rows))
    rows, frame = rows[facts.measured[rows]], frame[facts.measured[rows]]
    of_function = [rows[frame == one] for one in distinct(frame[frame >= 0])]
    again = [mine for mine in of_function if in_most_steps(facts, mine, _MOST_TO_LEARN + 1)]
    for mine in again:
        steps = len(distinct(facts.step_of(mine)))
        spent_ns = facts.steps.per_step_ns(int(facts.trace.events.duration_ns[mine].sum()))
        yield Suspicion(
            message=f"A function is compiled again in {format_count(steps, 'recorded step')}, {format_time(spent_ns)} "
            "a step. The recording does not say which guard fails; `TORCH_LOGS=recompiles` does.",
            fix=_OTHER_FIX + " If it is a size: `torch._dynamo.mark_dynamic(tensor, dim)`, or `dynamic=True`.",
            rows=mine,
            edit=remove(mine, uncertainty=_UNCERTAINTY),
            spent_ns=spent_ns,
            evidence={"compiling_ns_per_step": spent_ns, "steps": steps},
        )
    if not again:
        raise CannotLook("only recordings that profkit made show recompilations outside the recorded steps")


def _repeated(records: Sequence[Compilation]) -> list[_Repeated]:
    """Those that are more than the compiler needs to learn what varies."""
    groups: dict[tuple[int, str], list[Compilation]] = {}
    gave_up = {one.frame for one in records if _LIMIT.search(one.failure)}
    for one in records:
        if one.site is not None and one.reason:
            groups.setdefault((one.frame, _guard(one.reason, "N")), []).append(one)
    return [
        _Repeated(
            (frame,),
            group[-1].site,
            _guard(group[-1].reason),
            group[-1].reason,
            len(group),
            sum(one.duration_ns for one in group),
            frame in gave_up,
        )
        for (frame, _), group in groups.items()
        if len(group) > _MOST_TO_LEARN and group[-1].site is not None
    ]


def _join_resumed(found: list[_Repeated]) -> list[_Repeated]:
    """What varies in a function varies in its parts after graph breaks: one cause, one finding, at the function if it
    is among them, else at its first part."""
    joined: dict[tuple[str, str, str], _Repeated] = {}
    for one in sorted(found, key=lambda one: RESUMED.match(one.site.function) is not None):
        part = RESUMED.match(one.site.function)
        name = part[1] if part else one.site.function
        whole = next((key for key in joined if part and key[:2] == (one.site.file, name)), None)
        if whole is None:
            joined[one.site.file, name, f"{one.frames} {one.guard}"] = one
            continue
        host = joined[whole]
        joined[whole] = replace(
            host,
            frames=host.frames + one.frames,
            times=host.times + one.times,
            lost_ns=host.lost_ns + one.lost_ns,
            gave_up=host.gave_up or one.gave_up,
        )
    return list(joined.values())


def _guard(reason: str, number: str | None = None) -> str:
    """The guard that failed, in one line without its place; ``number`` replaces its numbers."""
    text = _OF_COMPILATION.sub("", reason.partition("\n")[0]).partition("  #")[0].strip()
    return text[:_MOST_TEXT] if number is None else _NUMBER.sub(number, text)


def _in_steps(facts: Facts, one: _Repeated, functions: int) -> Rows:
    """The compiler's work on this function in the measured steps. Work without the number of a function is this one's
    if no other function is compiled repeatedly."""
    rows, frame = compilations(facts)
    mine = np.isin(frame, one.frames) | ((frame < 0) & (functions == 1))
    return rows[mine & facts.measured[rows]]


def _suspect(one: _Repeated, rows: Rows, elapsed_ns: int) -> Suspicion:
    going_on = ", and again in most of the recorded steps" if rows.size else ""
    parts = ", in parts because of graph breaks," if len(one.frames) > 1 else ""
    limit = "; then it gave up, and what is new runs uncompiled" if one.gave_up else ""
    place, function = _read_at(one), Location.of(one.site)
    name = f"`{one.site.function}`" if place else "This function"
    return Suspicion(
        message=f"{name}{parts} was compiled again {format_count(one.times, 'time')}{going_on}, which took "
        f"{format_time(one.lost_ns)} so far{limit}. The guard that failed last: {one.guard}.",
        fix=next((fix for words, fix in _FIXES.items() if re.search(words, one.guard)), _OTHER_FIX),
        rows=rows,
        edit=remove(rows, uncertainty=_UNCERTAINTY) if rows.size else None,
        confidence=0.95,
        count=one.times,
        places=Places.of([place, function]),
        severity=None if rows.size else _severity_of_loss(one.lost_ns, elapsed_ns),
        evidence={
            "recompilations": one.times,
            "compiling_ns": one.lost_ns,
            "share_of_process_time": round(one.lost_ns / elapsed_ns, 4) if elapsed_ns else 0.0,
            "gave_up": int(one.gave_up),
        },
    )


def _read_at(one: _Repeated) -> Location | None:
    """Where the program's code reads the attribute that varies; None for an argument, which the function is given."""
    if not _OF_ATTRIBUTE.match(one.guard):
        return None
    read = [Location(file, int(line), function, source) for file, line, function, source in _READ.findall(one.reason)]
    return next((place for place in reversed(read) if not is_library(place.file)), None)


def _severity_of_loss(lost_ns: int, elapsed_ns: int) -> Severity:
    """Never high: the loss stops growing while the process goes on."""
    share = lost_ns / elapsed_ns if elapsed_ns else 0.0
    return Severity.MEDIUM if share >= HIGH_FROM else Severity.LOW if share >= LOW_FROM else Severity.INFO
