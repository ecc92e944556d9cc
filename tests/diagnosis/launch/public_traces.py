"""Handmade launches of eight GPUs in the forms of published traces of torch.profiler: of several years of PyTorch and
NCCL, with and without step marks, and of inference with its own kernels.

A step of a rank is a list of work, in microseconds, and of collectives that its compute stream waits for. The host runs
ahead of the GPU and waits for it at the end of each step. All ranks are simulated together.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.traces import annotation, kernel, op, runtime, step

Json = dict[str, Any]
RANKS, STEPS, FIRST_STEP = 8, 5, 6
LATE, LATE_US = 5, 20_000
ALL = (tuple(range(RANKS)),)
TENSOR = tuple(tuple(range(first, first + 4)) for first in (0, 4))
DATA = tuple((rank, rank + 4) for rank in range(4))
BASE_NS = 1_730_000_000_000_000_000
OLD = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
MIDDLE = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
NEW = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
CUSTOM = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, "
    "__nv_bfloat16*, int, int)"
)


@dataclass(frozen=True)
class Works:
    time_us: float


@dataclass(frozen=True)
class Talks:
    """A collective in each of these groups; each rank is in one group."""

    groups: tuple[tuple[int, ...], ...] = ALL
    elements: int = 1 << 20
    takes_us: float = 900
    name: str = "default_pg"
    operation: str = "allreduce"


Act = Works | Talks


@dataclass(frozen=True)
class Form:
    """How a release writes its traces. ``arguments_on``: the arguments are on the ``kernel``, on ``record_param_comms``
    (``params``) or on ``nothing``. ``numbered``: with ``Seq``. ``lists``: ``pg_config`` names the groups."""

    kernel: str = NEW
    arguments_on: str = "kernel"
    numbered: bool = True
    ranges: bool = True
    lists: bool = True
    truncated: bool = False
    file: str = "rank{rank}.json.gz"
    says_rank: bool = True
    steps: Callable[[int, int], int | None] = field(default=lambda rank, number: FIRST_STEP + number)
    graphs: bool = False


def training(late_us: float = 0) -> Callable[[int, int], list[Act]]:
    """Two collectives in each step. Ranks vary by a few per cent, and one works longer."""

    def acts(rank: int, number: int) -> list[Act]:
        vary = [100 * ((7 * rank + 5 * number + 3 * part + rank * number) % 11) for part in range(2)]
        extra = late_us if rank == LATE else 0
        first, second = Works(30_000 + vary[0] + extra), Works(20_000 + vary[1])
        return [first, Talks(), second, Talks(elements=1 << 18, takes_us=400)]

    return acts


def tensor_parallel(late_us: float = 0) -> Callable[[int, int], list[Act]]:
    """Two tensor-parallel groups of four whose gradients are averaged across the groups."""

    def acts(rank: int, number: int) -> list[Act]:
        vary = 100 * ((7 * rank + 5 * number + rank * number) % 11)
        extra = late_us if rank == LATE else 0
        layers: list[Act] = []
        for layer in range(4):
            own = 8_000 + vary + (extra if layer == 2 else 0)
            layers += [Works(own), Talks(TENSOR, 1 << 16, 120, "tp")]
        return [*layers, Talks(DATA, 1 << 22, 2_000, "dp")]

    return acts


def write_launch(
    folder: Path, acts: Callable[[int, int], list[Act]], form: Form, *, ranks: int = RANKS, steps: int = STEPS
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, events in enumerate(simulate(acts, form, ranks, steps)):
        name = form.file.format(rank=rank, pid=4_000 + 17 * rank, ts=1_730_000_000_000 + 31 * rank)
        content = json.dumps(_head(acts, form, rank, ranks, steps) | {"traceEvents": events}).encode()
        (folder / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    return folder


def _head(acts: Callable[[int, int], list[Act]], form: Form, rank: int, ranks: int, steps: int) -> Json:
    groups = {one for act in acts(rank, 0) if isinstance(act, Talks) for one in act.groups if rank in one}
    listed = [
        {"pg_name": str(at), "pg_desc": "undefined", "pg_size": len(one), "ranks": list(one)}
        for at, one in enumerate(sorted({tuple(range(ranks)), *groups}))
    ]
    arguments: Json = {"backend": "nccl", "rank": rank, "world_size": ranks}
    arguments |= {"pg_count": len(listed), "pg_config": listed} if form.lists else {}
    head = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS + 3_000_000 * rank}
    return head | ({"distributedInfo": arguments} if form.says_rank else {})


def simulate(acts: Callable[[int, int], list[Act]], form: Form, ranks: int, steps: int) -> list[list[Json]]:
    """The events of each rank. Their clocks are 3 ms apart."""
    now = [20_000.0] * ranks
    made = [_Rank(form, rank, ranks) for rank in range(ranks)]
    for number in range(steps):
        programs = [acts(rank, number) for rank in range(ranks)]
        for one, at in zip(made, now, strict=True):
            one.begin(at)
        for place in range(len(programs[0])):
            _go(made, [program[place] for program in programs], now)
        for rank, one in enumerate(made):
            now[rank] += 60
            one.end(form.steps(rank, number), now[rank])
    return [[{**event, "ts": event["ts"] - 3_000 * one.rank} for event in one.events] for one in made]


def _go(made: Sequence[_Rank], acts: Sequence[Act], now: list[float]) -> None:
    begun = list(now)
    for rank, act in enumerate(acts):
        if isinstance(act, Works):
            made[rank].compute(now[rank], act.time_us)
            now[rank] += act.time_us
        else:
            members = next(group for group in act.groups if rank in group)
            now[rank] = max(begun[other] for other in members) + act.takes_us
            made[rank].talk(act, members, begun[rank] + 2, now[rank])
            now[rank] += 2


class _Rank:
    """The events of one rank, collected during the simulation."""

    def __init__(self, form: Form, rank: int, ranks: int) -> None:
        self.form, self.rank, self.ranks = form, rank, ranks
        self.events: list[Json] = []
        self.begun = self.asked = 0.0
        self.correlation = 10_000
        self.sequence: dict[tuple[int, ...], int] = {}

    def begin(self, at: float) -> None:
        self.begun = at
        self.asked = at + 5
        self.correlation += 1
        if self.form.graphs:
            self.events.append(runtime("cudaGraphLaunch", self.asked, 8, correlation=self.correlation))

    def end(self, number: int | None, at: float) -> None:
        self.correlation += 1
        self.events.append(
            runtime("cudaDeviceSynchronize", self.asked + 10, at - self.asked - 12, correlation=self.correlation)
        )
        if number is not None:
            self.events.append(step(number, self.begun - 5, at - self.begun))

    def compute(self, at: float, time_us: float) -> None:
        for part in range(4):
            self._launch("ampere_sgemm_128x64_tn", at + part * time_us / 4, time_us / 4, 7, "aten::mm")

    def _launch(self, name: str, at: float, time_us: float, stream: int, operator: str) -> Json:
        if not self.form.graphs:
            self.correlation += 1
            self.events += [
                op(operator, self.asked, 4),
                runtime("cudaLaunchKernel", self.asked + 1, 2, correlation=self.correlation),
            ]
            self.asked += 5
        ran = kernel(name, at, time_us, correlation=self.correlation, stream=7 if self.form.graphs else stream)
        self.events.append(ran)
        return ran

    def talk(self, act: Talks, members: tuple[int, ...], start: float, end: float) -> None:
        arguments, asked = self._arguments(act, members), self.asked
        if not self.form.graphs:
            self.asked += 4
        stream = 7 if self.form.kernel == CUSTOM else 20
        ran = self._launch(self.form.kernel, start, end - start, stream, "c10d::allreduce_")
        if self.form.arguments_on == "kernel":
            ran["args"] |= arguments
        if self.form.graphs or not self.form.ranges:
            return
        self.events[-2]["ts"] = asked + 7  # the call of the runtime lies in what follows
        self.events[-3] |= {"ts": asked, "dur": 20}
        params = op("record_param_comms", asked + 2, 16)
        params["args"] |= arguments if self.form.arguments_on != "nothing" else {}
        around = annotation("nccl:all_reduce", asked + 4, 12)
        around["args"] |= {"Input Dims": [[act.elements]], "Input type": ["float"]}
        self.events += [params, around]
        self.asked = asked + 22

    def _arguments(self, act: Talks, members: tuple[int, ...]) -> Json:
        self.sequence[members] = self.sequence.get(members, 40) + 1
        ranks = f"[{', '.join(map(str, members))}]"
        if self.form.truncated and len(members) > 2:
            ranks = f"[{members[0]}, {members[1]}, ..., {members[-1]}]"
        arguments: Json = {
            "Collective name": act.operation,
            "In msg nelems": act.elements,
            "Out msg nelems": act.elements,
            "Group size": len(members),
            "dtype": "Float",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": str(act.groups.index(members)),
            "Process Group Description": act.name,
            "Process Group Ranks": ranks,
        }
        return arguments | ({"Seq": self.sequence[members]} if self.form.numbered else {})


FORMS: Mapping[str, Form] = {
    "2021": Form(OLD, "nothing", numbered=False, lists=False, file="trace_rank_{rank}.json"),
    "2023": Form(MIDDLE, "nothing", numbered=False, file="rank_{rank}.json.gz"),
    "2024": Form(NEW, "kernel", numbered=False, file="host7_{pid}.{ts}.pt.trace.json.gz"),
    "2025": Form(NEW, "kernel", file="rank0{rank}_trace.json.gz"),
    "arguments on the call": Form(NEW, "params", file="trace-rank-{rank}.json.gz"),
    "rccl": Form(GENERIC, "kernel", file="rank{rank}_trace.json.gz"),
    "lists cut short": Form(NEW, "kernel", truncated=True, lists=False),
    "sglang": Form(NEW, "kernel", says_rank=False, file="1730000000.1-TP-{rank}.trace.json.gz"),
    "no ranges": Form(NEW, "kernel", ranges=False),
    "no rank but in the name": Form(NEW, "kernel", says_rank=False),
}


def lockstep(rank: int, number: int) -> list[Act]:
    """The same work on all ranks, so that nothing distinguishes the groups."""
    return [Works(30_000), Talks(TENSOR, 1 << 16, 120, "tp"), Works(9_000), Talks(DATA, 1 << 22, 2_000, "dp")]
