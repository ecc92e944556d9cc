"""The output of `profkit fix`: what became of each finding's change, and the patch."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from profkit.core.units import format_bytes, format_count, format_share, format_time
from profkit.diagnosis.fixing.proving import ALTERED, DONE_TOO, HELD, REFUSED, TRIED, Fixes, Gain, Trial
from profkit.diagnosis.verify import Share
from profkit.findings.values import Severity
from profkit.report.wording import group_by_reason

_WIDTH = 80
"""Columns of a plain terminal."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_MENTIONED = 0.01
"""Of the time: waits for the processor that take less change no figure that is printed."""


def render_fixes(fixes: Fixes, patch: str, end: str) -> str:
    """Each finding with the verdict, then the patch of all that held, then what can be done with it."""
    blocks = [_trial(number, trial) for number, trial in enumerate(fixes.trials, 1)]
    groups = group_by_reason(dict(sorted(fixes.skipped.items())))
    not_looked = [_wrapped(f"not looked: {', '.join(rules)}: {reason}") for reason, rules in groups]
    tried = sum(trial.verdict != REFUSED for trial in fixes.trials)
    held = f"{format_count(len(fixes.held), 'change')} of {tried} tried held" if tried else "No change was tried"
    found = f"; {format_count(len(fixes.trials), 'finding')} in all." if fixes.trials else ": nothing was found."
    together = _wrapped(f"Together: {_gain(fixes.together)}") if fixes.together else ""
    summary = "\n".join(part for part in (f"{held}{found}", together, _wrapped(_untried(fixes.trials))) if part)
    return "\n\n".join(part.rstrip("\n") for part in (*blocks, "\n".join(not_looked), summary, patch, end) if part)


def _untried(trials: Sequence[Trial]) -> str:
    """What could still be tried, and how."""
    number = sum(_is_unsafe(trial) for trial in trials)
    if not number:
        return ""
    what, them = ("One more change", "it") if number == 1 else (f"{number} more changes", "them")
    return f"{what} may alter what the program computes: `--unsafe` tries {them}, and says by how much."


def _is_unsafe(trial: Trial) -> bool:
    return trial.verdict == REFUSED and trial.reason.endswith("--unsafe tries it")


def _trial(number: int, trial: Trial) -> str:
    place = f", {trial.finding.location.short}" if trial.finding.location else ""
    reason = trial.reason or _won(trial)
    lines = [f"{number}. {trial.finding.rule}{place}: {trial.verdict}{reason and f': {reason}'}"]
    is_left = trial.finding.severity is not Severity.INFO and trial.reason not in (DONE_TOO, TRIED)
    if trial.verdict == REFUSED and is_left and not _is_unsafe(trial):
        lines += [f"by hand: {advice}" for advice in _SENTENCE_END.split(trial.finding.fix)[:1] if advice]
    if trial.gain is not None:
        lines.append(_gain(trial.gain))
    if trial.comparison is not None and trial.verdict != REFUSED:
        lines += _compared(trial)
    first, *others = lines
    return "\n".join([_wrapped(first), *(f"   {_wrapped(line)}" for line in others)])


def _won(trial: Trial) -> str:
    """What the change is good for, if it held."""
    gain = trial.gain
    if trial.verdict != HELD or gain is None:
        return ""
    less = "less memory" if gain.frees_memory else "memory no longer grows"
    return f"{'faster' if gain.is_faster else less}, same results"


def _wrapped(line: str) -> str:
    """Further rows are indented. A number stays with its ``%``, and the name of a rule in one piece."""
    rows = textwrap.wrap(line.replace(" %", "\0%"), _WIDTH - 3, break_on_hyphens=False)
    return "\n   ".join(rows).replace("\0%", " %")


def _gain(gain: Gain) -> str:
    what, share = "a step" if gain.of_step else "a run", gain.share
    seconds = f"{format_time(gain.before_s * 1e9)} before, {format_time(gain.after_s * 1e9)} after, {what}"
    way = "shorter" if share.fraction >= 0 else "longer"
    shorter = f"{format_share(abs(share.fraction))} {way}, 95 % interval {_interval(share)}"
    memory = ""
    if gain.frees_memory:
        memory = f"; peak memory {format_bytes(gain.peak_before)} before, {format_bytes(gain.peak_after)} after"
    if gain.frees_graphs:
        memory += f"; {gain.nodes_before:,} backward nodes kept alive before, {gain.nodes_after:,} after"
    waits = f"; {format_share(gain.waited)} of the runs left out: others kept the processor busy"
    waits = waits if gain.waited >= _MENTIONED else ""
    threads = "; PyTorch in one thread, as others kept the processors busy" if gain.one_thread else ""
    return f"{seconds}: {shorter}, {gain.pairs} pairs of runs{memory}{waits}{threads}"


def _interval(share: Share) -> str:
    """In the direction of the middle: ``-2 to 7 %`` longer."""
    ends = (share.low, share.high) if share.fraction >= 0 else (-share.high, -share.low)
    low, high = (f"{100 * end:.1f}" for end in ends)
    return f"{low} to {high} %"


def _compared(trial: Trial) -> list[str]:
    assert trial.comparison is not None
    same = "the same: " if trial.comparison.is_same and trial.verdict != ALTERED else "compared: "
    lines = [same + ", ".join(("exit status", *trial.comparison.compared))]
    if trial.comparison.left_out:
        lines.append("not compared: " + ", ".join(trial.comparison.left_out))
    return lines
