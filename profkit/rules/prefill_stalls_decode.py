"""Sequences that generate wait while the server reads somebody else's prompt.

What it detects
An engine's steps, by the names of their ranges, that read prompts right after a step in which sequences generated, and
that take three times as long as steps that only generate, or more. Such a step may hold nothing but prompts, or these
beside the next tokens. There have to be two or more, and the time beyond a usual step has to be a tenth of all time or
more. Not reported: a server that reads its first prompts, and one whose prompts are read in pieces so small that the
steps stay short.

Why is this bad?
It need not be, where only the number of tokens a second counts: the prompts have to be read some time. But everybody
who is being answered sees the text stop. The time between two tokens is that of a whole prompt.

Example
    vllm serve MODEL --max-num-batched-tokens 16384

Use instead
    vllm serve MODEL --max-num-batched-tokens 2048

How the saving is estimated
Not at all: the work stays, and comes in smaller pieces. The finding states how long sequences wait. Its severity is
low, and medium if these steps take ten times as long as the others.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.patterns.serving.steps import EngineWork, engine_work
from profkit.rules.base import (
    HIGH_FROM,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.trace import Rows, median

_LEAST_TIMES, _MUCH = 3.0, 10.0
"""Times a step that only generates. Less is hardly seen; ten times is a pause that a reader notices."""
_FEWEST = 2
"""One may be an accident of the moment at which the recording began."""
_FEWEST_DECODES = 3
"""Steps that only generate: their median says what is usual."""
_IN_PIECES = (
    "Read prompts in pieces beside the sequences that generate: vLLM does so unless `--no-enable-chunked-prefill` is "
    "given, SGLang with `--enable-mixed-chunk` and a small `--chunked-prefill-size`. Or read them on other devices "
    "(disaggregated prefill)."
)
_SMALLER = (
    "Let a step read fewer tokens of prompts: vLLM's `--max-num-batched-tokens`, SGLang's `--chunked-prefill-size`, "
    "TensorRT-LLM's `max_num_tokens`. Or read prompts on other devices (disaggregated prefill)."
)


class _Stalls(Struct, frozen=True):
    """The numbers of the steps for which others wait, how long a step usually is, and how many sequences wait."""

    steps: Rows
    usual_ns: float
    waiting: float
    is_mixed: bool


@rule(Kind.OPPORTUNITY, Need.DEVICE)
def prefill_stalls_decode(facts: Facts) -> Suspicions:
    """One finding for all of these steps."""
    work = engine_work(facts)
    found = None if work is None else _find(work)
    if work is None or found is None:
        return
    each_ns = float(median(work.length_ns[found.steps]))
    beyond_ns = float((work.length_ns[found.steps] - found.usual_ns).sum())
    share = beyond_ns / max(int(work.length_ns.sum()), 1)
    if share < HIGH_FROM:
        return
    times = each_ns / found.usual_ns
    yield Suspicion(
        message=f"{format_count(len(found.steps), 'step')} with prompts take {format_time(each_ns)} each, "
        f"{times:,.0f} times as long as those that only generate. {format_count(round(found.waiting), 'sequence')} "
        f"wait{'s' * (round(found.waiting) == 1)} for the next token meanwhile, {format_share(share)} of the time.",
        fix=_SMALLER if found.is_mixed else _IN_PIECES,
        rows=work.named.rows[found.steps],
        severity=Severity.MEDIUM if times >= _MUCH else Severity.LOW,
        confidence=0.7,
        count=len(found.steps),
        evidence={
            "stalling_steps": len(found.steps),
            "step_ns": int(each_ns),
            "decode_step_ns": int(found.usual_ns),
            "waiting_share": round(share, 4),
        },
    )


def _find(work: EngineWork) -> _Stalls | None:
    decodes = work.of_kind("decode")
    if len(decodes) < _FEWEST_DECODES:
        return None
    usual_ns = float(median(work.length_ns[decodes]))
    steps = work.named.steps
    generating = np.array([0, *(step.generating for step in steps[:-1])])
    reads = np.array([step.prefilled > 0 for step in steps])
    long = work.length_ns >= _LEAST_TIMES * usual_ns
    stalls = np.flatnonzero(reads & long & work.in_turn & (generating > 0) & (usual_ns > 0))
    if len(stalls) < _FEWEST:
        return None
    mixed = sum(steps[at].generating > 0 for at in stalls.tolist())
    return _Stalls(stalls, usual_ns, float(generating[stalls].mean()), 2 * mixed > len(stalls))
