"""From the end of one replay of a graph to the start of the next, the device waits for the host.

What it detects
Steps most of whose kernels graphs launch, as in a server of a language model. For at least a tenth of the step the
device idles between two replays while the host works: it schedules, samples, turns tokens into text, or prepares the
next inputs. The step is taken without the recording, at its shortest. Not counted: what the host waits for, be it
data, other processes or work that was not recorded; compiling; pauses inside a graph; and pauses longer than three
usual steps, in which a server has no requests.

Why is this bad?
A replay takes one call, so the device is soon done with everything that is launched. What the host does then holds it
up in full, for every token.

Example
    while requests:
        batch = scheduler.schedule()
        tokens = model.replay(batch).tolist()  # the device has nothing to do from here on
        for request, token in zip(batch, tokens):
            request.text += tokenizer.decode([token])

Use instead
    while requests:
        following = model.replay(batch)  # returns at once, tokens stay on the device
        finish(previous)  # the text of the step before, while the device works
        previous, batch = following, scheduler.schedule()

How the saving is estimated
The step is replayed without what the host does on the main thread from the moment when the device is done until it
launches the next replay. That is the most that can be gained: all of it would have to be done while the device works.
"""

from __future__ import annotations

import re

from profkit.patterns import Places
from profkit.patterns.places.frames import parse_frame
from profkit.patterns.serving.names import named_steps
from profkit.patterns.serving.replays import Between, Spent, between_replays, is_replayed, replays
from profkit.rules.base import (
    HIGH_FROM,
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.savings import shrink_spans
from profkit.savings.launching import least_idle_share

_FEWEST = 3
"""Replays: between fewer there is one gap, and it may be an accident."""
_UNCERTAINTY = 0.4
"""Part of it depends on the tokens of the step before and has to stay."""
_FIXES = {
    "vLLM": "Let vLLM schedule the next step while the device works (`--async-scheduling`), and keep sampling on the "
    "device (no logits processors in Python).",
    "SGLang": "Leave SGLang's overlapped scheduler on (no `--disable-overlap-schedule`), and sample on the device.",
    "TensorRT-LLM": "Leave the overlapped scheduler on (no `disable_overlap_scheduler`).",
}
_MOSTLY = 0.5
"""Of the idle time: more of it lies within steps than between them."""
_WHOLE = (
    "Capture the whole step as one graph, not a graph for each piece between two calls of attention. vLLM does so with "
    "`cudagraph_mode` `FULL` or `FULL_AND_PIECEWISE`, if the attention backend allows it. In your own code break the "
    "graph nowhere."
)
_FIX = (
    "Launch the next replay before you handle the tokens of the last one. Keep the chosen tokens on the device as the "
    "next inputs, and write inputs into fixed buffers. Make text, statistics and schedules while the device works."
)
_WHAT = (
    (re.compile(r"detoken|decode_text|tokenizer|batch_decode|convert_ids", re.IGNORECASE), "turns tokens into text"),
    (re.compile(r"schedul", re.IGNORECASE), "schedules"),
    (re.compile(r"sampl|logits|penalt|multinomial|top_?[kp]", re.IGNORECASE), "samples"),
    (re.compile(r"prepare|build|metadata|inputs?\b|update_states", re.IGNORECASE), "prepares inputs"),
    (
        re.compile(r"process_(batch_)?(output|result)|update_from_output|stream_output", re.IGNORECASE),
        "handles results",
    ),
    (re.compile(r"\bgc\b|collect", re.IGNORECASE), "collects garbage"),
    (re.compile(r"send|recv|zmq|queue|socket|broadcast", re.IGNORECASE), "talks to other processes"),
)
"""What the name of a function, else that of its file, says of its work. The first that fits counts."""


@rule(Kind.OPPORTUNITY, Need.DEVICE, Need.WHOLE_STEP)
def host_between_replays(facts: Facts) -> Suspicions:
    """One finding for all gaps."""
    engine = named_steps(facts)
    if engine is not None and not (facts.launches.call >= 0).any():
        raise CannotLook("the recording does not say which call launched which kernel")
    found = replays(facts)
    if len(found.calls) < _FEWEST or not is_replayed(facts):
        return
    between = between_replays(facts)
    idle_share = least_idle_share(facts, between.idle)
    if idle_share < HIGH_FROM or not between.host.total_ns:
        return
    each_ns = between.idle.total_ns / (len(found.calls) - 1)
    yield Suspicion(
        message=f"Between {format_count(len(found.calls), 'replay')} of graphs the device idles "
        f"{format_time(each_ns)} each time, at least {format_share(idle_share)} of the step, while the host "
        f"{_does(between)}.",
        fix=_WHOLE if between.inside > _MOSTLY else _FIX if engine is None else _FIXES[engine.engine],
        places=Places.of([_function(one) for one in between.functions]),
        rows=found.calls,
        edit=shrink_spans(between.host.start_ns, between.host.end_ns, 0, _UNCERTAINTY),
        confidence=0.7,
        evidence={
            "idle_fraction": round(idle_share, 4),
            "idle_ns_each": int(each_ns),
            "inside_steps": round(between.inside, 4),
        },
    )


def _does(between: Between) -> str:
    """``schedules (schedule, 61 %), samples (sample, 20 %)``; what has no telling name is only named."""
    parts = []
    for one in between.functions:
        frame = parse_frame(one.name) if one.is_frame else None
        name, file = (frame[2], frame[0]) if frame else (one.name, "")
        what = next((words for text in (name, file) for pattern, words in _WHAT if pattern.search(text)), "")
        share = f"{name}, {format_share(one.share)}"
        parts.append(f"{what} ({share})" if what else f"is in {share}")
    return ", ".join(parts) if parts else "does what the recording does not name"


def _function(one: Spent) -> Location | None:
    """The function, at its ``def``."""
    frame = parse_frame(one.name) if one.is_frame else None
    return Location.in_function(CallSite(*frame)) if frame else None
