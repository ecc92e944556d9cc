"""Whether a difference between ranks is more than chance.

For one rank, Student's t test of paired differences compares its work with the others', step by step ("Student", The
Probable Error of a Mean, Biometrika 1908).

Among all ranks, Rosner's generalised test of extreme Studentised deviates finds those whose mean work stands out (B.
Rosner, Percentage Points for a Generalized ESD Many-Outlier Procedure, Technometrics 1983). Late ranks do not hide each
other, and the level holds for all ranks together. The error of a mean is estimated from the steps of all ranks (the
residuals of the two-way layout of ranks and steps), because five steps of one rank say little. If the other ranks
differ by more than that, their difference counts instead: consecutive steps are not independent (S. H. Hurlbert,
Pseudoreplication, Ecological Monographs 1984).
"""

from __future__ import annotations

import math

import numpy as np

from profkit.trace.events import Bools, Float64s

LEVEL = 0.01
"""At most one even launch in a hundred is called uneven."""
LEAST_STEPS = 3
"""Two differences give a mean, but hardly a spread."""
_LEAST_T = 2.326
"""Below this, chance is likelier than the level for any number of degrees of freedom."""
_MOST_FREEDOM = 200
"""Beyond this, Student's t is close to the normal distribution: the probabilities that matter differ by a tenth."""


def is_beyond_chance(differences: Float64s, comparisons: int) -> bool:
    """Whether their mean is above zero by more than chance, given how many comparisons are made."""
    count = len(differences)
    if count < LEAST_STEPS or float(differences.mean()) <= 0:
        return False
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    if error == 0:
        return True
    return upper_tail(float(differences.mean()) / error, count - 1) * comparisons < LEVEL


def stand_out(time_ns: Float64s, comparisons: int = 1) -> Bools:
    """Which ranks have a mean above the others' by more than chance, given how many comparisons are made.

    ``time_ns`` is by rank and step. At most half of the ranks stand out: more would be the usual case.
    """
    ranks, steps = time_ns.shape
    found = np.zeros(ranks, dtype=bool)
    if ranks < 2 or steps < LEAST_STEPS:
        return found
    mean = time_ns.mean(axis=1)
    order = np.argsort(-mean, kind="stable")
    freedom = min((ranks - 1) * (steps - 1), _MOST_FREEDOM)
    for late, t in enumerate(_deviates(time_ns, mean[order]), 1):
        if t > _LEAST_T and upper_tail(float(t), freedom) * (ranks - late + 1) * comparisons < LEVEL:
            found[order[:late]] = True
    return found


def _deviates(time_ns: Float64s, mean: Float64s) -> Float64s:
    """For the latest rank, the second latest and so on up to half of them: how far its mean is above that of all less
    late ranks, in standard errors. ``mean`` is in descending order."""
    ranks, steps = time_ns.shape
    rest = time_ns - time_ns.mean(axis=0) - time_ns.mean(axis=1, keepdims=True) + time_ns.mean()
    within = float((rest**2).sum()) / ((ranks - 1) * (steps - 1) * steps)
    late = np.arange(1, ranks // 2 + 1)
    count = ranks - late
    centred = mean - mean[-1]
    total, squares = (np.cumsum(one[::-1])[::-1][late] for one in (centred, centred**2))
    between = (squares - total**2 / count).clip(min=0) / np.maximum(count - 1, 1)
    error = np.sqrt(np.maximum(within, between) * (1 + 1 / count))
    above = centred[late - 1] - total / count
    deviates: Float64s = np.divide(above, error, out=np.where(above > 0, np.inf, 0.0), where=error > 0)
    return deviates


def upper_tail(t: float, freedom: int) -> float:
    """The probability that Student's t with these degrees of freedom is above ``t`` (Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.3 and 26.7.4).

    >>> round(upper_tail(2.015, 5), 3), round(upper_tail(6.965, 2), 3)
    (0.05, 0.01)
    """
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    odd = freedom % 2
    term, total = 1.0, 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * (k - 1) / k
        total += term
    if freedom == 1:
        inside = 2 * angle / math.pi
    elif odd:
        inside = 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
    else:
        inside = math.sin(angle) * total
    return (1 - inside) / 2
