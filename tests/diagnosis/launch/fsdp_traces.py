"""Handmade launches of FSDP on GPUs, as files like those that PyTorch writes on an MI300X: RCCL kernels whose names do
not show the operation, ranges of FSDP, no step marks, names like `rank0_trace_no_pyfn.json.gz`.

Each step runs the layers forward, with a gather before each, and the optimizer. The host runs ahead of the GPU. Times
are in microseconds.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.traces import MAIN, annotation, kernel, op, runtime

Json = dict[str, Any]
LAYERS, STEPS, GATHER, COMPUTE, UPDATE = 4, 4, 300, 1_000, 200
_PARTS = 10
_ELEMENTS = 1 << 22


def write_launch(
    folder: Path,
    *,
    prefetched: bool,
    ranks: int = 2,
    on_kernels: bool = True,
    whole_list: bool = True,
    late: float = 0,
    steps: dict[int, int] | None = None,
) -> None:
    """The layers of the last rank take ``late`` longer in each step. ``steps``: how many steps a rank recorded, if not
    all."""
    for rank in range(ranks):
        recorded = (steps or {}).get(rank, STEPS)
        mine = late / LAYERS if rank == ranks - 1 else 0
        events = _events(prefetched, (late / LAYERS, mine), recorded, _arguments(ranks, whole_list), on_kernels)
        info = {
            "backend": "nccl",
            "rank": rank,
            "world_size": ranks,
            "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}],
        }
        shifted = [{**event, "ts": event["ts"] - 5_000 * rank} for event in events]
        document = {
            "distributedInfo": info,
            "traceEvents": shifted,
            "baseTimeNanoseconds": 1_730_000_000_000_000_000 + 5_000_000 * rank,
        }
        with gzip.open(folder / f"rank{rank}_trace_no_pyfn.json.gz", "wt") as file:
            json.dump(document, file)


def _events(prefetched: bool, late: tuple[float, float], steps: int, arguments: Json, on_kernels: bool) -> list[Json]:
    """``late``: how much longer the layers take on the slowest rank and on this one. If they differ, this one waits."""
    events: list[Json] = []
    now, number = 20_000.0, 0
    slowest, own = late
    for done in range(steps):
        begin, asked = now, now
        now += 60
        ends = now
        for layer in range(LAYERS):
            if layer == 0 or not prefetched:
                start, ends = now, now + (slowest - own if layer or done else 0) + GATHER
                events += _gather(asked, start, ends, number, "_pre_forward", arguments, on_kernels)
                number += 1
            compute_at = max(now, ends)
            if prefetched and layer + 1 < LAYERS:
                ends = compute_at + GATHER
                events += _gather(asked + 40, compute_at, ends, number, "_pre_forward_prefetch", arguments, on_kernels)
                number += 1
            for k in range(_PARTS):
                part = (COMPUTE + own) / _PARTS
                events += _launched("gemm", compute_at + k * part, part, asked + 80 + 2 * k, 7, 1_000 * number + k)
            now, asked = compute_at + COMPUTE + own, asked + 110
        events += [
            op("autograd::engine::evaluate_function: MmBackward0", asked, 5),
            annotation("Optimizer.step#AdamW.step", asked + 10, 20),
            *_launched("adam", now, UPDATE, asked + 12, 7, 1_000 * number + 50),
            runtime("hipDeviceSynchronize", asked + 40, now + UPDATE - asked - 40),
        ]
        now += UPDATE + 20
        assert begin < asked < now
    return events


def _launched(name: str, start: float, duration: float, at: float, stream: int, correlation: int) -> list[Json]:
    return [
        op("aten::mm", at, 2),
        runtime("hipLaunchKernel", at + 0.5, 1, correlation=correlation),
        kernel(name, start, duration, correlation=correlation, stream=stream),
    ]


def _arguments(ranks: int, whole_list: bool) -> Json:
    return {
        "Collective name": "_allgather_base",
        "In msg nelems": _ELEMENTS,
        "Out msg nelems": _ELEMENTS * ranks,
        "Group size": ranks,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str([*range(ranks)]) if whole_list else "[0, ..., 1]",
    }


def _gather(
    at: float, start: float, end: float, number: int, inside: str, arguments: Json, on_kernels: bool
) -> list[Json]:
    name = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
    ran = kernel(name, start, end - start, correlation=500_000 + number, stream=9)
    ran["args"] |= arguments if on_kernels else {}
    params = op("record_param_comms", at + 4, 20)
    params["args"] |= arguments
    return [
        annotation("FullyShardedDataParallel." + inside, at, 36, tid=MAIN),
        op("c10d::_allgather_base_", at + 2, 30),
        params,
        annotation("nccl:_all_gather_base", at + 6, 14),
        runtime("hipExtLaunchKernel", at + 8, 4, correlation=500_000 + number),
        ran,
    ]
