"""A request for GPU memory failed.

What it detects
A memory snapshot whose history holds a request that failed, after PyTorch had given back everything it kept unused and
asked again. The finding says which line asked for how much, how much was held at that moment and by which lines, and
what to change. It is for information if the program went on to allocate: then it caught the error, as a search for the
largest batch does. profkit keeps a history in one step only; of a program that it runs and that fails in another one,
the snapshot of that moment shows what was held, and the run's notes which line asked.

Why is this bad?
The program dies, or at least loses the step. The line that asks is seldom the one to blame: it is the first to find the
memory full.

Example
    loss = criterion(model(x), y)    # 64 samples, float32
    loss.backward()
    optimizer.step()

Use instead
    for part, goal in zip(x.chunk(2), y.chunk(2)):
        with torch.autocast("cuda", torch.bfloat16):
            loss = criterion(model(part), goal) / 2
        loss.backward()
    optimizer.step()

How the saving is estimated
Memory: the most that one of the changes gives back of what was held at that moment. Activations are assumed to be in
float32 and as large as the batch, so half a batch, or bfloat16, leaves half of them; an optimizer's state in eight bits
leaves a quarter. Changes for which nothing was held are not named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from profkit.derive.memory.allocator import Allocator
from profkit.derive.memory.origins import Origin
from profkit.derive.memory.purposes import LABELS, Purpose, label_of
from profkit.findings.values import ASKED_EVIDENCE, HELD_EVIDENCE, HELD_FOR_EVIDENCE
from profkit.patterns import Places
from profkit.patterns.allocator.failures import Failure, asking_site, failures, growth_before
from profkit.patterns.allocator.lines import allocator_of, holding_lines, site_of
from profkit.patterns.allocator.purposes import purposes_of
from profkit.patterns.allocator.rounds import held_passes, kept_rounds
from profkit.rules.base import (
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_bytes,
    format_count,
    format_share,
    rule,
)

_MOST_NAMED = 3
_SEVERAL = 2
_LEAST_SHARE = 0.05
"""Of the memory held: a smaller help is not worth a line."""


class _Change(Struct, frozen=True):
    """What to change, and the most that it gives back."""

    size_bytes: int
    text: str


@rule(Kind.FAULT, Need.SNAPSHOT)
def out_of_memory(facts: Facts) -> Suspicions:
    """The last failure of each device: the one that ended the program, if any."""
    last = {failure.device: failure for failure in failures(facts)}
    for device, failure in last.items():
        yield _suspect(facts, failure, sum(one.device == device for one in failures(facts)))


def _suspect(facts: Facts, failure: Failure, count: int) -> Suspicion:
    allocator = allocator_of(facts)
    held = allocator.allocations.live_after(failure.device, failure.row)
    parts = purposes_of(allocator, held)
    changes = sorted(_changes(facts, failure, parts), key=lambda change: -change.size_bytes)
    changes = [change for change in changes if change.size_bytes >= _LEAST_SHARE * failure.held_bytes]
    asked = asking_site(facts, failure)
    lines = [line.site for line in holding_lines(facts, held)[:_MOST_NAMED]]
    passes = held_passes(facts, held)
    called = site_of(facts, passes.frame) if passes is not None else None
    trains = _trains(allocator, failure, failure.row)
    rounds = passes.rounds if passes is not None and passes.rounds >= _SEVERAL and not trains else 0
    untrained = _UNTRAINED.format(rounds) if rounds else ""
    return Suspicion(
        message=f"A request for {format_bytes(failure.asked_bytes)} failed: {format_bytes(failure.held_bytes)} was "
        f"held, {_name_parts(parts, failure)}.{untrained} "
        f"{_room(failure)}{'' if failure.is_last else ' The program went on.'}",
        fix=_advise(changes, failure),
        places=Places.of_sites((asked, called, *lines)),
        size_bytes=changes[0].size_bytes if changes else 0,
        severity=Severity.HIGH if failure.is_last else Severity.INFO,
        confidence=0.95,
        count=count,
        evidence={
            ASKED_EVIDENCE: failure.asked_bytes,
            HELD_EVIDENCE: failure.held_bytes,
            "reserved_bytes": failure.reserved_bytes,
            "bytes_in_gaps": failure.gap_bytes,
            "free_bytes_of_the_device": failure.free_bytes,
            **{f"{HELD_FOR_EVIDENCE}{LABELS[purpose].replace(' ', '_')}": size for purpose, size in parts.items()},
        },
    )


def _trains(allocator: Allocator, failure: Failure, end: int) -> bool:
    """Whether a backward pass ran before this row of the history. Without a history one may have."""
    return not failure.has_history or bool((allocator.entries[:end] == Origin.BACKWARD).any())


_UNTRAINED = " The model was called in {} rounds without a backward pass: each round keeps what it saved for one."


def _name_parts(parts: Mapping[Purpose, int], failure: Failure) -> str:
    whole = max(failure.held_bytes, 1)
    named = [(format_share(size / whole), label_of(purpose, failure.has_history)) for purpose, size in parts.items()]
    return ", ".join(
        f"{share}{'' if at else ' of it'} {label}" for at, (share, label) in enumerate(named[:_MOST_NAMED])
    )


def _room(failure: Failure) -> str:
    """Where room was left, if any."""
    gaps = f"{format_bytes(failure.gap_bytes)} lay free in gaps"
    if failure.gaps:
        gaps += f", {format_count(failure.gaps, 'gap')} of {format_bytes(failure.largest_gap_bytes)} at most"
    if failure.is_limited:
        return (
            f"The process may use {format_bytes(failure.limit_bytes)} of the device (set_per_process_memory_fraction), "
            f"which had {format_bytes(failure.free_bytes)} left; {gaps}."
        )
    if failure.free_bytes >= failure.asked_bytes:
        return (
            f"The device had {format_bytes(failure.free_bytes)} left, but this request did not get it. Either the "
            f"process has a limit (set_per_process_memory_fraction), or the room was not in one piece; {gaps}."
        )
    return f"The device had {format_bytes(failure.free_bytes)} left, and {gaps}."


def _advise(changes: list[_Change], failure: Failure) -> str:
    if not changes:
        return (
            "Record the program's memory from its start: call `torch.cuda.memory._record_memory_history()` "
            "before the model is made. What was held here is older than the history, so its lines are not "
            "known."
        )
    enough = "" if changes[0].size_bytes >= failure.asked_bytes else " None alone makes enough room."
    lines = [f"- up to {format_bytes(change.size_bytes)}: {change.text}" for change in changes]
    return "\n".join([f"What each change gives back, the most first.{enough}", *lines])


def _changes(facts: Facts, failure: Failure, parts: Mapping[Purpose, int]) -> Iterator[_Change]:
    """The changes that would have helped, by what was held at that moment."""
    allocator = allocator_of(facts)
    in_what = Origin(int(allocator.origins[failure.stack]))
    held = {purpose: parts.get(purpose, 0) for purpose in Purpose}
    rounds = kept_rounds(facts)
    if failure.gap_bytes >= failure.asked_bytes:
        yield _Change(failure.gap_bytes, "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, which joins the gaps.")
    if rounds is not None and rounds.device == failure.device:
        yield _Change(
            rounds.total_bytes - rounds.each_bytes,
            f"free what {rounds.rounds} rounds left behind (see the finding on that): all but one are of no use.",
        )
    if (grown := growth_before(facts, failure)) is not None:
        yield _Change(
            failure.held_bytes - grown.size_bytes,
            f"let go of what grows: tensors took {format_bytes(grown.size_bytes)} after step {grown.step} and more "
            "after each later one. See the finding on what keeps them, if there is one.",
        )
    yield from _for_activations(held[Purpose.ACTIVATIONS], _trains(allocator, failure, len(allocator.entries)))
    if in_what is Origin.FORWARD or in_what is Origin.PROGRAM:
        yield _Change(
            held[Purpose.GRADIENTS],
            "clear the gradients before the forward pass, with "
            "`optimizer.zero_grad(set_to_none=True)`: they are held while the model computes.",
        )
    if in_what is Origin.OPTIMIZER:
        yield _Change(
            held[Purpose.TEMPORARIES],
            "`fused=True` for the optimizer, which needs no temporary copies, or `foreach=False`.",
        )
    yield _Change(
        held[Purpose.OPTIMIZER_STATE] * 3 // 4,
        "an optimizer with 8-bit state (bitsandbytes); or keep the state on the host, or divide it among "
        "several GPUs (FSDP, ZeroRedundancyOptimizer).",
    )
    yield _Change(
        held[Purpose.OWN], "keep on the host what the program itself put there, and move each batch when it is wanted."
    )
    if in_what is not Origin.FORWARD or not held[Purpose.ACTIVATIONS]:
        yield _Change(
            held[Purpose.PARAMETERS] // 2, "the model in bfloat16, `model.to(torch.bfloat16)`, if it is in float32."
        )


def _for_activations(size_bytes: int, trains: bool) -> Iterator[_Change]:
    if not trains:
        yield _Change(
            size_bytes,
            "run it under `with torch.inference_mode():` if nothing is trained (no backward pass was seen). Then "
            "nothing is kept for one.",
        )
    yield _Change(
        size_bytes // 2,
        "a batch half as large; two of them accumulate the same gradient (divide the loss by 2, step after both).",
    )
    yield _Change(
        size_bytes // 2, '`with torch.autocast("cuda", torch.bfloat16):` around the forward pass, if it is in float32.'
    )
    yield _Change(
        size_bytes,
        "checkpoint the blocks (`torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`): only what goes "
        "into each is kept, for one more forward pass.",
    )
