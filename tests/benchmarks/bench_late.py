"""How often ranks are called late that are not, and how often those that are, on launches drawn by chance.

    python tests/benchmarks/bench_late.py [--launches 300]

Each launch is a table of own work by rank, step and place, with noise of one kind; half of the work lies at one place,
the rest at seven others. Printed are shares of the launches in per cent: for profkit's test
(`profkit.derive.launch.late`), and for Student's t of each rank by itself, by all of its work or its worst place, with
its level divided by the number of ranks (and places). With nobody late that is how often anybody is named; else how
often exactly the late ones are.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import numpy as np

from profkit.derive.launch.chance import is_beyond_chance
from profkit.derive.launch.late import find_late
from profkit.derive.launch.work_by_rank import WorkByRank
from profkit.trace.events import Float64s

SHARES = np.array([0.5, 0.2, 0.1, 0.06, 0.05, 0.04, 0.03, 0.02])
Draw = Callable[[np.random.Generator, int, int], Float64s]


def _lognormal(sigma: float) -> Draw:
    return lambda chance, ranks, steps: np.exp(sigma * chance.standard_normal((ranks, steps)))


def _following(coefficient: float) -> Draw:
    """Noise of which a part stays from step to step."""

    def draw(chance: np.random.Generator, ranks: int, steps: int) -> Float64s:
        values = chance.standard_normal((ranks, steps))
        for step in range(1, steps):
            values[:, step] = coefficient * values[:, step - 1] + math.sqrt(1 - coefficient**2) * values[:, step]
        return np.exp(0.2 * values)

    return draw


def _spikes(chance: np.random.Generator, ranks: int, steps: int) -> Float64s:
    hit = chance.random((ranks, steps)) < 0.1
    return _lognormal(0.1)(chance, ranks, steps) + hit * chance.exponential(1.0, (ranks, steps))


def _one_unsteady(chance: np.random.Generator, ranks: int, steps: int) -> Float64s:
    found = _lognormal(0.1)(chance, ranks, steps)
    found[0] = np.exp(0.6 * chance.standard_normal(steps) - 0.18)
    return found


def _turns(chance: np.random.Generator, ranks: int, steps: int) -> Float64s:
    found = _lognormal(0.1)(chance, ranks, steps)
    found[chance.integers(0, ranks, steps), np.arange(steps)] += 1
    return found


def _all_differ(chance: np.random.Generator, ranks: int, steps: int) -> Float64s:
    return 1 + 0.03 * chance.standard_normal((ranks, 1)) + 0.01 * chance.standard_normal((ranks, steps))


NOISE: dict[str, Draw] = {
    "lognormal, 10 %": _lognormal(0.1),
    "lognormal, 30 %": _lognormal(0.3),
    "one step in ten twice as long": _spikes,
    "one rank varies by 60 %": _one_unsteady,
    "autocorrelated, 0.25": _following(0.25),
    "autocorrelated, 0.5": _following(0.5),
    "a random rank late in each step": _turns,
    "each rank another 3 %": _all_differ,
}
LATE: dict[str, Callable[[int], int]] = {"nobody": lambda _: 0, "one": lambda _: 1, "half": lambda ranks: ranks // 2}


def draw_launch(chance: np.random.Generator, noise: Draw, shape: tuple[int, int], late: int, by: float) -> WorkByRank:
    """A step takes 1; ``late`` ranks work ``by`` longer at the second place."""
    ranks, steps = shape
    place_ns = noise(chance, ranks, steps)[:, :, None] * SHARES
    place_ns = place_ns * np.exp(0.05 * chance.standard_normal(place_ns.shape))
    place_ns[:late, :, 1] += by
    places = tuple((1, "train.py", line) for line in range(len(SHARES)))
    return WorkByRank(np.arange(steps), place_ns.sum(axis=2), places, place_ns, np.zeros(ranks, dtype=np.int64))


def alone(own: WorkByRank) -> set[int]:
    """Student's t of each rank by itself."""
    ranks, late = len(own.kind), set()
    for rank in range(ranks):
        others = np.arange(ranks) != rank
        excess = own.total_ns[rank] - np.median(own.total_ns[others], axis=0)
        by_place = own.place_ns[rank] - np.median(own.place_ns[others], axis=0)
        worst = int(by_place.mean(axis=0).argmax())
        is_enough = 0 < excess.mean() >= 0.5 * by_place[:, worst].mean()
        if is_beyond_chance(excess, ranks) or (
            is_enough and is_beyond_chance(by_place[:, worst], ranks * len(own.places))
        ):
            late.add(rank)
    return late if len(late) * 2 < max(ranks, 3) else set()


def together(own: WorkByRank) -> set[int]:
    """profkit's."""
    found = find_late(own)
    return set() if found is None else set(found.ranks.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=300)
    given = parser.parse_args()
    print("| ranks x steps | late | noise | each by itself | profkit |\n|---|---|---|---|---|")
    for shape in ((2, 4), (4, 4), (8, 5), (32, 5)):
        for who, count in LATE.items():
            for name, noise in NOISE.items():
                chance, late = np.random.default_rng(0), count(shape[0])
                if who == "half" and late < 2:
                    continue
                drawn = [draw_launch(chance, noise, shape, late, 0.5) for _ in range(given.launches)]
                shares = [
                    100 * np.mean([(test(own) != set(range(late))) == (late == 0) for own in drawn])
                    for test in (alone, together)
                ]
                print(f"| {shape[0]} x {shape[1]} | {who} | {name} | {shares[0]:.1f} | {shares[1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
