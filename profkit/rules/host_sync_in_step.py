"""In every step the host stops until the device has caught up, to read a number or for no reason.

What it detects
With a GPU: lines that make the host wait for the device in most steps. `.item()`, `float(x)`, `int(x)`, `print(x)` and
`if x > y:` on a tensor read a number from the device, `.cpu()` reads all of it; `torch.cuda.synchronize()` and blocking
copies wait for the whole queue. Without a GPU: lines that read a number out of a tensor in at least half of the steps.
A read every hundred steps is not reported, nor are PyTorch's own reads: in the DataLoader, in an optimizer's step, in
GradScaler's check for overflow; nor are calls that wait for work which was not recorded, or for the tokens of a
server's step (see `host-between-replays`). Boolean indexing has its own rule, and so do copies of data
(pageable-transfer, many-small-transfers, repeated-transfer, device-to-host-in-step) and, without a GPU, loops over
elements.

Why is this bad?
The host usually runs ahead and fills a queue of kernels. A number exists only once everything queued before it has run,
so the host stops, the queue runs empty, and the device idles until the host launches again. On a CPU there is no queue:
the read costs a few microseconds, and the line starts to hurt when the program moves to a GPU.

Example
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()

Use instead
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(total.item())

How the saving is estimated
The recorded steps are replayed with the host continuing instead of waiting, and without fetching single numbers. A wait
during which the device has work saves nothing. If several lines wait for the same reason, removing one wait often gains
nothing because the next line waits instead: all are removed together, and each line gets its part of that. Some loops
read a number in each round although, as the source shows, no round needs another's result and none multiplies matrices.
Such a loop takes the host the time of one round, because all rounds can be computed at once; a sum on the device alone
would not achieve that. Without a GPU the reads themselves are removed, which saves next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from profkit.patterns import (
    in_most_steps,
    name_lines,
    named_operators,
    per_step,
    program_operators,
    spent_ns,
    spent_per_step_ns,
    times_a_step,
    works_under,
)
from profkit.patterns.loops.reading_loops import reading_loops
from profkit.patterns.places.calls_between import sites_of_calls
from profkit.patterns.program import calling_operator
from profkit.patterns.serving.results import awaits_a_step
from profkit.patterns.time.wait_causes import READS, WaitCause, pytorchs_own, wait_causes
from profkit.patterns.transfers.copies import program_transfers
from profkit.patterns.transfers.faults import waits_told_of
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    derived_once,
    format_count,
    format_share,
    format_time,
    missing_needs,
    reason_for,
    rule,
)
from profkit.savings import Edit, combine, remove, shrink_spans, unblock
from profkit.savings.pricing import divide_saving, one_round_ns
from profkit.savings.replay import replay
from profkit.trace import NONE, Bools, Category, Rows, among, distinct

_ELEMENT_LOOP = 64
"""Without a GPU, this many reads on one line in one step are a loop over a tensor's elements. tensor-element-loop
reports it: Python's loop is what costs, not the reading."""
_MOSTLY = 0.5
"""Of the waits: if the device works for longer, nobody may say that it idles meanwhile."""
_SYNCHRONISES = re.compile(r"torch/.*\.py\(\d+\): synchronize$")
"""Python frames of ``torch.cuda.synchronize`` and of that of streams and events."""
_WAITS = "synchronize"
"""The same in the source: of CUDA, of any accelerator, of a stream, of an event."""


class _Remedy(Struct, frozen=True):
    """The causes of a kind of wait, and what to change."""

    causes: tuple[WaitCause, ...]
    fix: str


_READ = _Remedy(
    (WaitCause.NUMBER_FROM_DEVICE, WaitCause.DATA_FROM_DEVICE),
    "Keep the value on the device (`total += loss.detach()`, `torch.where` instead of `if`). Read it once in a "
    "while: after the loop, or every hundred steps.",
)
_READ_AT_ONCE = (
    "No round of this loop needs another's result: compute for all tensors at once "
    "(`torch._foreach_norm(tensors)`, `torch.stack(values)`; `torch.nn.utils.clip_grad_norm_` clips gradients). "
    "Then read what is needed with one `.tolist()`, or not at all."
)
_COPY = _Remedy(
    (WaitCause.SMALL_COPY_TO_DEVICE, WaitCause.OTHER),
    "Create small tensors on the device (`device=`), once and outside the loop, or copy them from pinned memory with "
    "`non_blocking=True`.",
)
_TRANSFER = _Remedy(
    (WaitCause.DATA_TO_DEVICE,),
    "Copy from pinned memory (`pin_memory=True` in the DataLoader, or `x.pin_memory()` once) with "
    "`non_blocking=True`: the host then goes on during the transfer.",
)
_PINNED = (
    "The memory is already pinned: copy with `non_blocking=True`, and the host goes on during the transfer. Do "
    "not refill the buffer before its copy is done (`event.synchronize()` one step later)."
)
_CALL = _Remedy(
    (WaitCause.CALL,),
    "Remove the call: a stream keeps its work in order by itself. Only measuring time needs to wait.",
)
REMEDIES = (_READ, _COPY, _TRANSFER, _CALL)


class _Line(Struct, frozen=True):
    """Waits of one line, or of one operator if no line is known: the waits, what the program called there, and the
    line's call site, `NONE` if unknown. ``runs`` are the runs of a loop around them that could be one call."""

    rows: Rows
    place: Rows
    site: int
    runs: tuple[Rows, ...] = ()


@rule(Kind.FAULT, Need.COMPUTE)
def host_sync_in_step(facts: Facts) -> Suspicions:
    """Group the waits, or without a GPU the reads, by line; if no line is known, by operator."""
    if facts.waits.rows.size and not facts.device.present:
        raise CannotLook("the program used a GPU, but the GPU's side was not recorded")
    calls = facts.device.present and facts.trace.rows(Category.RUNTIME).size
    if not calls and missing_needs(facts, (Need.OPERATORS,)):
        raise CannotLook(reason_for(facts, Need.OPERATORS))
    if not facts.device.present:
        for line in _lines(facts, _reads(facts)):
            yield from _judge_reads(facts, line)
        return
    for remedy, lines in waiting_lines(facts):
        if not lines:
            continue
        edits = [_without(facts, line) for line in lines]
        together = combine(edits)
        if remedy is not _READ and replay(facts, together).fraction < LOW_FROM:
            continue  # such waits are faults only if they hold something up
        parts = divide_saving(facts, edits, together, [int(spent_ns(facts, line.rows).sum()) for line in lines])
        for line, edit, part in zip(lines, edits, parts, strict=True):
            if not waits_told_of(facts)[line.rows].any():
                yield from _judge_waits(facts, remedy, line, edit, part, together, others=len(lines) - 1)


def waiting_lines(facts: Facts) -> Iterator[tuple[_Remedy, list[_Line]]]:
    """The waits that this rule judges, by remedy and by line; none for an engine's tokens. Waits that a rule of
    the transfers reports form lines of their own, as they have a part in what all of them give back."""
    cause = np.where(awaits_a_step(facts), NONE, wait_causes(facts))
    for remedy in REMEDIES:
        rows = facts.waits.rows[among(cause, np.array(remedy.causes))]
        known = waits_told_of(facts)[rows]
        lines = [*_lines(facts, rows[~known]), *_lines(facts, rows[known])]
        yield remedy, [_with_loop(facts, line) for line in lines] if remedy is _READ else lines


def _with_loop(facts: Facts, line: _Line) -> _Line:
    if line.site == NONE:
        return line
    return replace(line, runs=tuple(reading_loops(facts, distinct(line.place), program_operators(facts))))


def _judge_reads(facts: Facts, line: _Line) -> Suspicions:
    count, spent = per_step(facts, line.rows), spent_per_step_ns(facts, line.rows)
    if _in_most_steps(facts, line.rows) and count < _ELEMENT_LOOP:
        yield Suspicion(
            message=f"A number is read out of a tensor {times_a_step(facts, line.rows)}, which costs "
            f"{format_time(spent)} here, on the CPU. On a GPU the host would stop each time until the device has "
            "run all queued work.",
            fix=_READ.fix,
            rows=line.place,
            edit=remove(line.rows),
            spent_ns=spent,
            evidence={"reads_per_step": round(count, 2), "time_ns_per_step": spent},
        )


def _judge_waits(
    facts: Facts, remedy: _Remedy, line: _Line, edit: Edit, part: float, together: Edit, others: int
) -> Suspicions:
    stops, waited = distinct(line.place), spent_per_step_ns(facts, line.rows)
    count, most = per_step(facts, stops), _in_most_steps(facts, line.rows)
    all_saved = replay(facts, together).fraction
    saved = part * all_saved
    # A read in every step is a fault even if it costs nothing yet, if its line is known or the wait is long. Other
    # waits are faults only if they hold something up. In a recording of one step, a single wait proves no pattern.
    tells = line.site != NONE or waited >= LOW_FROM * facts.steps.median_ns
    repeats = most or (len(facts.steps) == 1 and count >= 3)
    if not ((most and remedy is _READ and tells) or (repeats and saved >= LOW_FROM)):
        return
    also = f", and {format_share(all_saved)} with {format_count(others, 'other line')} like it" if others else ""
    worth = (
        f"{_meanwhile(facts, line)}: without the wait the step would be {format_share(saved)} shorter{also}"
        if saved >= LOW_FROM
        else "The device has work meanwhile, or idles anyway: the wait costs almost nothing here"
    )
    name = facts.trace.names[int(np.bincount(facts.trace.events.name_code[line.place]).argmax())]
    yield Suspicion(
        message=f"The host waits {format_time(waited)} a step for the device, {times_a_step(facts, stops)} in {name}. "
        f"{worth}.",
        fix=_fix(facts, remedy, line),
        rows=stops,
        edit=edit,
        places=name_lines(facts, [line.site]),
        joint=together if others else None,
        part=part,
        confidence=0.9 if most else 0.7,
        evidence={"waits_per_step": round(count, 2), "waited_ns_per_step": waited},
    )


def _meanwhile(facts: Facts, line: _Line) -> str:
    """What the device does during the waits. If it works, only what comes behind them is late."""
    start_ns, end_ns = facts.trace.events.start_ns[line.rows], facts.tree.end_ns[line.rows]
    worked_ns = int(facts.device.busy.covered_within(start_ns, end_ns).sum())
    if worked_ns <= _MOSTLY * (end_ns - start_ns).sum():
        return "The device has nothing to do meanwhile"
    worked = format_time(facts.steps.per_step_ns(worked_ns))
    return f"For {worked} of it the device works, and then gets its next work late"


def _fix(facts: Facts, remedy: _Remedy, line: _Line) -> str:
    if line.runs:
        return _READ_AT_ONCE
    sent = program_transfers(facts)
    sent = sent.at(sent.to_device & among(sent.place, line.place))
    return _PINNED if remedy is _TRANSFER and len(sent) and sent.is_pinned.all() else remedy.fix


def _without(facts: Facts, line: _Line) -> Edit:
    """The host continues instead of waiting. Numbers that stay on the device are not fetched, the recorded frames of a
    removed call vanish with it, and a loop that could be one call becomes one."""
    reads = distinct(line.place[named_operators(facts, *READS)[line.place]])
    called = facts.tree.nearest_ancestor(_synchronising_frames(facts), of=line.rows)
    gone = np.concatenate([reads, distinct(called[called >= 0])])
    without = [unblock(line.rows), remove(gone, works_under(facts, facts.trace.mask_of(reads)), uncertainty=0.2)]
    return combine([*without, *(_called_once(facts, reads, run) for run in line.runs)])


def _called_once(facts: Facts, reads: Rows, run: Rows) -> Edit:
    """A run of a loop takes the host the time of one round. The device computes as much as before."""
    start_ns, end_ns = facts.trace.events.start_ns[run[:1]], facts.tree.end_ns[run[-1:]]
    return shrink_spans(start_ns, end_ns, one_round_ns(facts, run, int(among(run, reads).sum())), uncertainty=0.3)


@derived_once
def _synchronising_frames(facts: Facts) -> Bools:
    """The outermost frames of PyTorch's functions that only wait."""
    return facts.tree.outermost(facts.trace.matching(_SYNCHRONISES))


def _in_most_steps(facts: Facts, rows: Rows) -> bool:
    return len(facts.steps) > 1 and in_most_steps(facts, rows)


def _reads(facts: Facts) -> Rows:
    """The outermost reads of one number by the program's main thread."""
    scalar = facts.tree.holding(named_operators(facts, "aten::_local_scalar_dense"))
    reads = facts.tree.outermost(named_operators(facts, *READS)) & scalar
    reads &= facts.trace.events.lane == facts.steps.main_lane
    return facts.measured_rows(reads & ~facts.lines.backward & ~pytorchs_own(facts))


def _lines(facts: Facts, rows: Rows) -> Iterator[_Line]:
    """By the line of the outermost operator around each row. A wait outside of every operator takes the line that ran
    between the same two operators and contains a waiting call."""
    place = calling_operator(facts, rows)
    inside = facts.trace.events.category[place] == Category.OPERATOR
    site = np.where(inside, facts.lines.site[place], sites_of_calls(facts, place, _WAITS))
    groups = np.where(site >= 0, site, -1 - facts.trace.events.name_code[place].astype(np.int64))
    for group in distinct(groups):
        chosen = groups == group
        yield _Line(rows[chosen], place[chosen], max(int(group), NONE))
