"""A function is called again with the arguments of an earlier call, and gives what it gave before.

What it detects
A line that calls a function of Python, the program's or a library's, whose arguments are what they were: the same
objects, unchanged, or equal numbers, texts, arrays and lists, as are the object it belongs to, the variables around it
and its module's. The result is equal too, or the same object. That holds for all calls of the line that were looked at,
in two steps: within a step, as where each sample of a batch builds one table of filters, or from step to step, as where
each update looks parameters up by name. Not reported: functions that return nothing or one of their arguments; that are
given an iterator, a file or a generator of random numbers; whose result somebody writes into, or needs gradients; and
functions that compute with PyTorch's operators, which `redundant-recomputation` looks at. A program whose steps all
compute the same is a benchmark, and only judged within a step. If a function has few different arguments, and three
quarters of its calls repeat others of the step, that part of them is reported.

So is a variable of a function that is called twenty times or more in a step: a list, table or array that held the same
whenever a call ended, made by lines that only read and compute. What the function does beside may differ each time, as
where each draw of a sample first builds the table of all weights.

Why is this bad?
The function's whole time is spent on what the program had already. Nothing in the text shows it: the call looks like
any other.

Example
    def features(wave):
        bank = mel_filters(RATE, BINS, MELS)
        return torch.log(bank @ spectrum(wave))

Use instead
    bank = mel_filters(RATE, BINS, MELS)

    def features(wave):
        return torch.log(bank @ spectrum(wave))

How the saving is estimated
The share of plain steps in which samples of the stacks meet the function below these lines is left out of each step.
Without samples it is what the calls took in the step in which they were watched, or less, as watching slows Python;
then the rule is silent about a function that calls PyTorch at all.
With a GPU that is the host's time, and there is no estimate.
"""

from __future__ import annotations

from profkit.patterns import Places
from profkit.patterns.repeated_calls import SameAgain, computes_by_operators, same_again
from profkit.rules.base import (
    LOW_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    Watch,
    format_count,
    format_share,
    rule,
    why_not_watched,
)
from profkit.savings import without_share

_BENCHMARK = 0.8
"""Of PyTorch's calls that were looked at. See `redundant-recomputation`."""
_NOT_WATCHED = "what functions are given was not recorded (run a program with steps under profkit)"
_LOOK_UP = (
    "Look it up once, before the loop, and keep the result: a list of pairs that belong together serves every step."
)
_CALL_ONCE = (
    "Call it once, before the loop or where its object is made. Keep the result in a variable, an attribute or "
    "a buffer (`register_buffer`). If the arguments may change, `functools.cache` keeps a result for each."
)
_MAKE_ONCE = (
    "Make it once, before the loop over these calls, and pass it on. Where what it is made of changes from step to "
    "step, make it once a step. Or draw, look up or compute for all calls at once: then one is enough."
)


@rule(Kind.FAULT, Need.OPERATORS, Need.WHOLE_STEP)
def repeated_call(facts: Facts) -> Suspicions:
    """One finding for each function, at the line that takes most of it."""
    if facts.run.repeated_calls is None:
        raise CannotLook(why_not_watched(facts, Watch.FUNCTIONS, _NOT_WATCHED))
    for found in same_again(facts):
        if (found.is_within or not _repeats_all(facts)) and not computes_by_operators(facts, found):
            yield from _judge(facts, found)


def _repeats_all(facts: Facts) -> bool:
    """Whether each step does what the one before did, as a benchmark does."""
    known = facts.run.recomputation
    return known is not None and known.looked_at > 0 and len(known.each_step) > _BENCHMARK * known.looked_at


def _judge(facts: Facts, found: SameAgain) -> Suspicions:
    price = found.price
    if price.low < LOW_FROM:
        return
    has_edit = not facts.device.present
    yield Suspicion(
        message=_message(found),
        fix=_MAKE_ONCE if found.is_variable else _LOOK_UP if found.is_lookup else _CALL_ONCE,
        edit=without_share(facts, price.share, price.low, price.high) if has_edit else None,
        worth=LOW_FROM if has_edit else 0.0,
        confidence=0.8 if found.is_sampled else 0.7,
        count=found.calls,
        places=Places.of_sites(found.sites),
        severity=None if has_edit else Severity.LOW,
        evidence={"calls_per_step": found.calls, "callee": found.callee, "share": round(price.share, 4)},
    )


def _message(found: SameAgain) -> str:
    if found.is_variable:
        times = f"{'' if found.is_whole else 'at least '}{found.calls:,} calls a step"
        share = format_share(found.price.share)
        return (
            f"`{found.defined.function}` makes `{found.callee}` anew in each of its {times}, and it held the same each "
            f"time. That takes {share} of the host's time."
        )
    often = f"{'' if found.is_whole else 'at least '}{format_count(found.calls, 'time')} a step"
    when = "an earlier call of the step" if found.is_within else "the step before"
    part = "" if found.part == 1 else f", {format_share(found.part)} of them"
    gave = "found the same object each time" if found.is_lookup else "gave an equal result each time"
    lines = "" if len(found.sites) == 1 else f" from {format_count(len(found.sites), 'line')}"
    told = f"`{found.callee}` is called {often}{lines}{part} with the arguments of {when}, and {gave}."
    if found.is_sampled:
        return f"{told} That takes {format_share(found.price.share)} of the host's time."
    share = f"{format_share(found.price.low)} to {format_share(found.price.high)}"
    return f"{told} That takes {share} of the host's time, by a step in which recording slowed Python."
