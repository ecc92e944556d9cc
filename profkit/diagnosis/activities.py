"""What a place of the program does with its time, in words."""

from __future__ import annotations

from profkit.core.units import format_count, format_share
from profkit.findings.values import Activity, CostlyPlace, Doing, Peak

UNPLACED = "at no line that is known"
_WORDS = {
    Activity.PRODUCTS: "matrix products and convolutions",
    Activity.OPERATORS: "other operators",
    Activity.UPDATE: "the optimizer's update",
    Activity.COPIES: "copies between host and device",
    Activity.LOADING: "waiting for the DataLoader's next batch",
    Activity.WAITING: "the host waits for the device",
    Activity.EXCHANGE: "exchange with other ranks, and waits for them",
    Activity.PYTHON: "outside PyTorch: Python, other libraries, or a wait",
}
_PEAKS = {
    Peak.MEASURED: "the rate measured on this machine",
    Peak.DATA_SHEET: "the rate in the GPU's data sheet",
    Peak.OWN: "the rate that such a processor should reach",
}
_NAMED = (Activity.PRODUCTS, Activity.OPERATORS)
_AT_MOST = 0.99
"""Above this the rate would be rounded to 100 %, which a peak that was only measured does not allow to say."""


def describe_doing(doing: Doing, is_brief: bool = False) -> str:
    """``matrix products and convolutions (most in aten::linear), at 71 % of the rate measured on this machine``. If it
    ``is_brief``, an operator is named only instead of a kind."""
    if doing.activity in (Activity.SMALL, Activity.LAUNCHING):
        return _describe_small(doing)
    words = _WORDS[doing.activity]
    if doing.activity is Activity.OPERATORS and doing.name and is_brief:
        words = f"mostly {doing.name}"
    elif doing.activity in _NAMED and doing.name and not is_brief:
        words += f" (most in {doing.name})"
    if doing.of_peak is None or doing.peak_from is None or doing.activity not in _NAMED:
        return words
    if doing.activity is Activity.OPERATORS:
        return f"{words}, which move data at {format_share(doing.of_peak)} of the memory's rate"
    return f"{words}, at {_rate(doing.of_peak)} of {_PEAKS[doing.peak_from]}"


def _rate(of_peak: float) -> str:
    return "all" if of_peak > _AT_MOST else format_share(of_peak)


def _describe_small(doing: Doing) -> str:
    such = f", such as {doing.name}" if doing.name else ""
    if doing.activity is Activity.LAUNCHING:
        if doing.count == 1:
            return f"the host launches {doing.name}, while the device has nothing to do"
        calls = format_count(doing.count, "operator") if doing.count else "operators"
        return f"the host launches {calls}{such}, while the device has nothing to do"
    if not doing.count:
        return "operators too short to compute much"
    return f"{format_count(doing.count, 'small operator')} per step{such}"


def name_place(place: CostlyPlace) -> str:
    """``model.py:41``, ``aten::linear``; for all that has no known place, that it has none."""
    if place.location is not None:
        return place.location.short
    return place.name or UNPLACED


def describe_judgement(place: CostlyPlace) -> str:
    """Whether the place needs its time, as far as the recording shows."""
    if place.is_explained:
        return "needed for what it computes, as far as a recording shows"
    if place.unjudged:
        return f"not judged: {place.unjudged}"
    return "no rule knows a fault here, and nothing shows that all of it is needed"
