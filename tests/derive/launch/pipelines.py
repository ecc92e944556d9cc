"""Pipelines made by hand: what each stage does, in microseconds (see `launches`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.derive.launch.launch import Launch
from tests.derive.launch.launches import Act, ask, end_step, launch_of, wait, work

TRANSFER = 1.0
STEPS = 5


def stage(
    place: int,
    stages: int,
    micro_batches: int,
    time: float,
    *,
    steps: int = STEPS,
    returns: bool = True,
    tensors: int = 1,
    jitter: Sequence[float] = (0.0,),
) -> list[Act]:
    """All micro-batches forwards, a third of the time, then all backwards (GPipe). Senders do not wait."""
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
                acts.append(work(mine * share, site=0, is_backward=way == "b"))
                acts += give(f"{way}{place}-{after}", name) if 0 <= after < stages else []
        acts.append(end_step())
    return acts


def pipeline(times: Sequence[float], micro_batches: int, **more: object) -> list[list[Act]]:
    """One program for each stage, given how long it takes for a micro-batch."""
    return [stage(at, len(times), micro_batches, time, **more) for at, time in enumerate(times)]  # type: ignore[arg-type]


def messages_in(programs: Sequence[Sequence[Act]], first_rank: int = 0) -> dict[str, tuple[int, int]]:
    """The sender and the receiver of each kind of message, from its name."""
    kinds = dict.fromkeys(act.name.split("#")[0] for program in programs for act in program if act.name)
    ends = {kind: kind[1:].split(".")[0].split("-") for kind in kinds if kind[0] in "fb" and "-" in kind}
    return {kind: (first_rank + int(one), first_rank + int(other)) for kind, (one, other) in ends.items()}


def transfers_of(programs: Sequence[Sequence[Act]]) -> Mapping[str, float]:
    return {act.name.split("#")[0]: TRANSFER for program in programs for act in program if act.name}


def launch(programs: Sequence[Sequence[Act]], *, behind: Sequence[float] | None = None) -> Launch:
    return launch_of(programs, transfers_of(programs), messages=messages_in(programs), behind=behind)


def interleaved(ranks: int, chunks: int, micro_batches: int, times: Sequence[float]) -> list[list[Act]]:
    """Each rank holds several stages: stage s is on rank s mod p. All micro-batches go through a rank's first stage,
    then through its second one and so on. Then the gradients come back (GPipe, breadth first)."""
    last = ranks * chunks - 1
    programs: list[list[Act]] = []
    for rank in range(ranks):
        acts, lane = [], iter(range(1, 10**6))
        passes = [(chunk * ranks + rank, 1) for chunk in range(chunks)]
        for step in range(STEPS):
            for stage_at, way in (*passes, *((one, -1) for one, _ in reversed(passes))):
                for batch in range(micro_batches):
                    before, after = stage_at - way, stage_at + way
                    name = f"{step}.{way}.{batch}"
                    if 0 <= before <= last:
                        taken = f"f{before % ranks}-{rank}#{name}.{min(before, stage_at)}"
                        acts += [ask(taken, next(lane)), wait(taken)]
                    acts.append(work(times[rank] * (1 if way > 0 else 2), is_backward=way < 0))
                    if 0 <= after <= last:
                        acts.append(ask(f"f{rank}-{after % ranks}#{name}.{min(after, stage_at)}", next(lane)))
            acts.append(end_step())
        programs.append(acts)
    return programs


def ring(ranks: int, times: Sequence[float]) -> list[list[Act]]:
    """Keys and values go round while each rank computes with the ones that it has, as in ring attention."""
    programs: list[list[Act]] = []
    for rank in range(ranks):
        acts, lane = [], iter(range(1, 10**6))
        before, after = (rank - 1) % ranks, (rank + 1) % ranks
        for step in range(STEPS):
            for back in (False, True):
                for hop in range(ranks):
                    name = f"{step}.{back}.{hop}"
                    sent, taken = f"f{rank}-{after}#{name}", f"f{before}-{rank}#{name}"
                    goes_on = hop < ranks - 1
                    acts += [ask(sent, next(lane)), ask(taken, next(lane))] if goes_on else []
                    acts.append(work(times[rank] * (2 if back else 1), is_backward=back))
                    acts += [wait(taken)] if goes_on else []
            acts.append(end_step())
        programs.append(acts)
    return programs
