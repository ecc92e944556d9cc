"""Pipelines made by hand: what each stage does, in microseconds (see `launches`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.ranks.launch import Launch
from tests.ranks.launches import Act, ask, end_step, launch_of, wait, work

TRANSFER = 1.0
STEPS = 5


def stage(
    place: int, stages: int, micro_batches: int, time: float, *, steps: int = STEPS, returns: bool = True,
    tensors: int = 1, jitter: Sequence[float] = (0.0,),
) -> list[Act]:  # fmt: skip
    """All micro-batches forwards, a third of its time, then all backwards (GPipe). Who sends does not wait for it."""
    acts: list[Act] = []
    lane = iter(range(1, 10**6))

    def take(kind: str, name: str) -> list[Act]:
        names = [f"{kind}.{i}#{name}" for i in range(tensors)]
        return [act for one in names for act in (ask(one, next(lane)), wait(one))]

    def give(kind: str, name: str) -> list[Act]:
        return [ask(f"{kind}.{i}#{name}", next(lane)) for i in range(tensors)]

    for step in range(steps):
        mine = time + jitter[step % len(jitter)]
        for way, before, after, share in (("f", place - 1, place + 1, 1 / 3), ("b", place + 1, place - 1, 2 / 3)):
            for batch in range(micro_batches if way == "f" or returns else 0):
                name = f"{step}.{batch}"
                acts += take(f"{way}{before}-{place}", name) if 0 <= before < stages else []
                acts.append(work(mine * share, site=0))
                acts += give(f"{way}{place}-{after}", name) if 0 <= after < stages else []
        acts.append(end_step())
    return acts


def pipeline(times: Sequence[float], micro_batches: int, **more: object) -> list[list[Act]]:
    """One program for each stage, which takes so long for a micro-batch."""
    return [stage(at, len(times), micro_batches, time, **more) for at, time in enumerate(times)]  # type: ignore[arg-type]


def messages_in(programs: Sequence[Sequence[Act]], first_rank: int = 0) -> dict[str, tuple[int, int]]:
    """Who sends each kind to whom, by its name."""
    kinds = dict.fromkeys(act.name.split("#")[0] for program in programs for act in program if act.name)
    ends = {kind: kind[1:].split(".")[0].split("-") for kind in kinds if kind[0] in "fb" and "-" in kind}
    return {kind: (first_rank + int(one), first_rank + int(other)) for kind, (one, other) in ends.items()}


def transfers_of(programs: Sequence[Sequence[Act]]) -> Mapping[str, float]:
    return {act.name.split("#")[0]: TRANSFER for program in programs for act in program if act.name}


def launch(programs: Sequence[Sequence[Act]], *, behind: Sequence[float] | None = None) -> Launch:
    return launch_of(programs, transfers_of(programs), messages=messages_in(programs), behind=behind)
