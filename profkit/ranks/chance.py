"""Whether a difference between ranks is more than chance.

Student's t test of the mean of paired differences ("Student", The Probable Error of a Mean, Biometrika 1908) tells it
of one rank: its work less that of the others, step by step. Which of all ranks stand out tells Rosner's generalised
test of extreme Studentised deviates (B. Rosner, Percentage Points for a Generalized ESD Many-Outlier Procedure,
Technometrics 1983), by their mean work: none of several that are late hides another, and the level holds for all ranks
together. What a mean varies by chance is told by all ranks' steps (the residuals of the two-way layout of ranks and
steps, as five steps of one rank tell little), or by how much the other ranks differ among each other if that is more:
steps that follow each other are no independent witnesses (S. H. Hurlbert, Pseudoreplication, Ecological Monographs
1984).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.01
"""One even launch in a hundred is called uneven."""
LEAST_STEPS = 3
"""Two differences give a mean, but hardly a spread."""
_LEAST_T = 2.326
"""Below this the probability is above the level for any number of degrees of freedom."""
_MOST_FREEDOM = 200
"""From there on Student's t is the normal distribution, but for a tenth of a probability as small as it matters."""


def is_beyond_chance(differences: NDArray[np.float64], comparisons: int) -> bool:
    """Whether their mean is above zero by more than chance, where so many means are looked at."""
    count = len(differences)
    if count < LEAST_STEPS or float(differences.mean()) <= 0:
        return False
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    if error == 0:
        return True
    return upper_tail(float(differences.mean()) / error, count - 1) * comparisons < LEVEL


def stand_out(time_ns: NDArray[np.float64], comparisons: int = 1) -> NDArray[np.bool_]:
    """Of these ranks, by rank and step, those whose mean is above the others' by more than chance, where so many such
    tables are looked at: half of them at most, as more would be what is usual."""
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


def _deviates(time_ns: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the latest rank, the second and so on to half of them, how far its mean is above that of all that are less
    late, in standard errors. ``mean`` is in order."""
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
    deviates: NDArray[np.float64] = np.divide(above, error, out=np.where(above > 0, np.inf, 0.0), where=error > 0)
    return deviates


def upper_tail(t: float, freedom: int) -> float:
    """The probability that Student's t with so many degrees of freedom is above ``t`` (Abramowitz and Stegun, Handbook
    of Mathematical Functions, 26.7.3 and 26.7.4).

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
