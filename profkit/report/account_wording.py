"""Words and figures for how a saving came about, the same in every report."""

from __future__ import annotations

from profkit.core.units import format_count, format_share, format_time
from profkit.findings.accounts import Account, TakenFrom, TakenOut
from profkit.findings.values import Diagnosis, Finding
from profkit.report.wording import is_measured, printable

HEADER = ("taken out of a step", "takes", "of which stays")
_ONE = {
    TakenFrom.WAIT: "the host's wait in {}",
    TakenFrom.DEVICE: "{} on the device",
    TakenFrom.STRETCH: "a stretch of the host's time, with all that runs in it",
    TakenFrom.RANK: "own work of {}",
    TakenFrom.TRANSFER: "the transfer of {}",
    TakenFrom.EARLIER: "{}, asked for this much earlier",
}
_OF_LAUNCH = (TakenFrom.RANK, TakenFrom.TRANSFER, TakenFrom.EARLIER)
_NOTICED = 0.02
"""Less of what is taken out is not worth a sentence of its own."""
_LEAST_SPREAD = 0.005
"""Shares are shown in whole per cent."""


def account_rows(account: Account) -> list[tuple[str, str, str]]:
    """What is taken out, how long it takes in a step, and what stays of that."""
    return [(_piece(one), format_time(one.took_ns), format_time(one.kept_ns)) for one in account.taken]


def _piece(taken: TakenOut) -> str:
    name = _ONE.get(taken.origin, "{}").format(printable(taken.name))
    return name if taken.count == 1 else f"{taken.count:,g} x {name}"


def account_sentences(diagnosis: Diagnosis, finding: Finding) -> list[str]:
    """What the replay makes of it, what that is in a step of the program, and how sure it is."""
    account, saving = finding.account, finding.saving
    if account is None or saving is None:
        return []
    left_out = f"{format_count(account.more, 'other name')} would give back {format_time(account.more_ns)} more."
    return [
        *([left_out] if account.more else []),
        _replayed(account, diagnosis.timing.bound_by is not None),
        *_shared(account),
        *_in_the_program(diagnosis, finding),
        *_how_sure(finding, account),
    ]


def _replayed(account: Account, has_device: bool) -> str:
    before, after = format_time(account.step_ns), format_time(account.edited_ns)
    text = f"Replayed, the step takes {after} instead of {before}, {format_share(account.fraction)} less."
    taken_ns = sum(one.took_ns - one.kept_ns for one in account.taken) + account.more_ns
    hidden_ns = taken_ns - (account.step_ns - account.edited_ns)
    if hidden_ns <= _NOTICED * taken_ns:
        return text
    if any(one.origin in _OF_LAUNCH for one in account.taken):
        why = "ranks work side by side, and the latest counts"
    elif has_device:
        why = "host and device work side by side, and the longer of the two counts"
    else:
        why = "other programs held the machine then, or the recording added it"
    return f"{text} Of the {format_time(taken_ns)} taken out, {format_time(hidden_ns)} give nothing back: {why}."


def _shared(account: Account) -> list[str]:
    if account.part == 1:
        return []
    part = format_share(account.part)
    return [
        f"Several places have this cause. All of them are taken out, and {part} of what that gives back is this one's."
    ]


def _in_the_program(diagnosis: Diagnosis, finding: Finding) -> list[str]:
    timing, saving = diagnosis.timing, finding.saving
    if saving is None or not timing.unprofiled_step_time_ns:
        return []
    how = "measured" if timing.unprofiled_from == "measured" else "by estimate"
    step, share, saved = timing.unprofiled_step_time_ns, format_share(saving.fraction), saving.time_ns_per_step
    return [
        f"Without the recording a step takes {format_time(step)} ({how}); {share} of that are {format_time(saved)}."
    ]


def _how_sure(finding: Finding, account: Account) -> list[str]:
    saving = finding.saving
    if saving is None:
        return []
    model = "the rounds of the experiment differ" if is_measured(finding) else "the model may be off"
    parts = [f"{model} by {format_share(account.uncertainty)} of the saving either way"]
    if account.spread >= _LEAST_SPREAD:
        parts.append(f"the measured steps differ by {format_share(account.spread)}")
    text = f"Likely {format_share(saving.low)} to {format_share(saving.high)}: {' and '.join(parts)}."
    if saving.high > min(1.0, saving.fraction * (1 + account.uncertainty + account.spread)) + _NOTICED:
        text += " The busy device hides how fast the host is without the recording; hence the upper end."
    return [text]
