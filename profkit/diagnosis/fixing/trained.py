"""Whether a program trains the same after a change: its parameters in the end, and the gradients of its first step.

All parameters of an optimizer together hide one of them: a scale of the logits is one number beside millions. So each
is looked at too, if its gradient is more than rounding, in the first step or a later one, and whether it moves at all.
The bias of an attention's keys, for instance, has none but that, and Adam makes steps of it all the same.

What no optimizer trains is compared as far as both versions have it: the statistics of a batch norm tell how often it
was called, although no result of the training depends on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from profkit.core.units import format_count, format_share
from profkit.diagnosis.fixing.comparison import Comparison
from profkit.trace.events import Bools, Float64s

Parameters = Mapping[str, Float64s]
"""Of one run, as ``start.N.…`` and ``end.N.…`` of the optimizer ``N``, and ``gradients.N``: how long each one's
gradient is when it first steps, ``longest.N`` at most in some steps. ``state.…`` and ``count.…`` are buffers of
modules, and parameters that no optimizer trains."""
_KEPT_NAMES = ("state.", "count.")
MOVED = 1e-3
"""Of how far training moved the parameters. A change of the order of additions leaves 1e-6 to 1e-4."""
_MOVED_ALONE = 0.1
"""The same of a single parameter, whose steps may be a few, and which others' rounding moves too."""
_KEPT = 0.01
"""Of the size of a buffer: it follows from the parameters, which may differ by as much as they may."""
_GRADIENT = 0.01
"""Of the length of a gradient in the first step: rounding has not added up by then."""
_ROUNDING = 1e-4
"""Of the longest gradient: shorter ones may consist of what rounding leaves of it. Float32 leaves 1e-7 of a sum."""


def compare_parameters(before: Sequence[Parameters], after: Sequence[Parameters]) -> Comparison:
    """Compare what runs of the program as it was have trained with what the changed one has."""
    first = before[0]
    if not first:
        return Comparison()
    apart = [_distance(first, run) for run in before[1:]]
    if any(one is None or one > MOVED for one in apart):
        return Comparison(unknown="the trained parameters differ from run to run without a change: give --seed 0")
    found = [_distance(first, run) for run in after]
    far = [one for one in found if one is not None]
    if len(far) < len(found):
        return Comparison(differs="the optimizers have other parameters than before")
    if max(far) > MOVED:
        share = format_share(min(max(far), 9.99))
        return Comparison(differs=f"the trained parameters differ by {share} of how far training moved them")
    other = _other_gradient(before, after) or _other_state(before, after)
    if other:
        return Comparison(differs=other)
    return _compared(first, max(far))


def _other_gradient(before: Sequence[Parameters], after: Sequence[Parameters]) -> str:
    """What is said of a single parameter, if runs of the program as it was agree about each."""
    if any(_single_difference(before[0], run) for run in before[1:]):
        return ""
    return next((one for run in after if (one := _single_difference(before[0], run))), "")


def _other_state(before: Sequence[Parameters], after: Sequence[Parameters]) -> str:
    """What is said of a buffer on which runs of the program as it was agree."""
    first = before[0]
    steady = [name for name in _kept(first) if all(_is_kept(first, run, name) for run in before[1:])]
    other = next((name for run in after for name in steady if name in run and not _is_kept(first, run, name)), "")
    owner, _, rest = other.partition(".")[2].partition(".")
    return f"`{rest.rpartition('.')[0]}` of a {owner} ends as another" if other else ""


def _compared(first: Parameters, far: float) -> Comparison:
    count = sum(name.startswith("end.") and value.size > 0 for name, value in first.items())
    unread = sum(name.startswith("end.") and value.size == 0 for name, value in first.items())
    how = "to the last bit" if far == 0 else f"within {far:.0e} of how far training moved them"
    left_out = (f"{format_count(unread, 'parameter')} that could not be read",) if unread else ()
    return Comparison(
        compared=(f"{format_count(count, 'trained parameter')} ({how})",) if count else (), left_out=left_out
    )


def _distance(first: Parameters, second: Parameters) -> float | None:
    """How far apart the parameters end, as a share of how far training moved the first; the worst optimizer counts.
    None if they are not alike."""
    shapes = [{name: value.shape for name, value in _of_optimizers(one).items()} for one in (first, second)]
    if shapes[0] != shapes[1]:
        return None
    return max((_distance_of(first, second, number) for number in _optimizers(first)), default=0.0)


def _optimizers(parameters: Parameters) -> list[str]:
    return sorted({name.split(".")[1] for name in _of_optimizers(parameters)})


def _of_optimizers(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if not name.startswith(_KEPT_NAMES)}


def _kept(parameters: Parameters) -> list[str]:
    """What is not trained."""
    return [name for name in parameters if name.startswith(_KEPT_NAMES)]


def _is_kept(first: Parameters, second: Parameters, name: str) -> bool:
    """Whether a buffer ends the same. Integers must be equal, and one that is gone may be."""
    if name not in second:
        return False
    one, other = first[name], second[name]
    if name.startswith("count.") or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return np.array_equal(one, other, equal_nan=True)
    return _length([one - other]) <= _KEPT * _length([one])


def _names_of(parameters: Parameters, number: str) -> list[str]:
    return [name.partition(".")[2] for name in parameters if name.startswith(f"end.{number}.")]


def _distance_of(first: Parameters, second: Parameters, number: str) -> float:
    names = _names_of(first, number)
    ends, starts = (
        [first[f"{when}.{name}"] for name in names if f"{when}.{name}" in first] for when in ("end", "start")
    )
    if len(ends) != len(starts) or any(a.shape != b.shape for a, b in zip(ends, starts, strict=False)):
        moved = _length(ends)  # parameters came later: their size is the only measure
    else:
        moved = _length([end - start for end, start in zip(ends, starts, strict=True)])
    apart = _length([first[f"end.{name}"] - second[f"end.{name}"] for name in names])
    if not np.isfinite(apart):
        same = all(np.array_equal(first[f"end.{name}"], second[f"end.{name}"], equal_nan=True) for name in names)
        return 0.0 if same else float("inf")
    return apart / moved if moved else float(apart > 0)


def _single_difference(first: Parameters, second: Parameters) -> str:
    """What is said of a parameter that trains otherwise although all of them together hardly differ; empty if none
    does."""
    for number in _optimizers(first):
        old, new = (run.get(f"gradients.{number}") for run in (first, second))
        names = _names_of(first, number)
        if old is None or new is None or not len(old) == len(new) == len(names):
            continue
        longest = np.maximum(old, new)
        told = _are_told(longest)
        far = told & (np.abs(old - new) > _GRADIENT * longest)
        if far.any():
            at = int(np.argmax(far))
            said = f"{new[at]:.3g} instead of {old[at]:.3g}"
            return f"the gradient of parameter {at + 1} of an optimizer has another length in its first step: {said}"
        later = [run.get(f"longest.{number}", longest) for run in (first, second)]
        longest = np.maximum(*later) if all(len(one) == len(longest) for one in later) else longest
        told |= _are_told(longest)
        for single, name in enumerate(names):
            is_rounding = longest[single] > 0 and not told[single]
            if not is_rounding and _moves(first, name) != _moves(second, name):
                return f"parameter {single + 1} of an optimizer is trained in one version alone"
        for single in np.flatnonzero(told).tolist():
            if _apart_alone(first, second, names[single]) > _MOVED_ALONE:
                return f"parameter {single + 1} of an optimizer is trained otherwise than before"
    return ""


def _are_told(lengths: Float64s) -> Bools:
    """Which gradients are more than rounding; none that is no number."""
    told: Bools = lengths > _ROUNDING * np.nanmax(lengths, initial=0.0)
    return told


def _moves(run: Parameters, name: str) -> bool:
    """Whether a parameter ends as another than it began; one that began later does."""
    start, end = run.get(f"start.{name}"), run[f"end.{name}"]
    return start is None or not np.array_equal(start, end, equal_nan=True)


def _apart_alone(first: Parameters, second: Parameters, name: str) -> float:
    """How far apart one parameter ends, as a share of how far it moved; 0 if it did not move or began later."""
    start, end = first.get(f"start.{name}"), first[f"end.{name}"]
    if start is None or start.shape != end.shape:
        return 0.0
    moved, apart = _length([end - start]), _length([end - second[f"end.{name}"]])
    return apart / moved if moved and np.isfinite(apart) else 0.0


def _length(vectors: Sequence[Float64s]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(float((vector * vector).sum()) for vector in vectors)))
