"""A small trace as PyTorch 2.13 records it on a GPU, with figures calculated by hand."""

from __future__ import annotations

from typing import Any

STEPS = 2
OVERVIEW_US = {
    # Of each step of 1000 µs: what the device does comes first, then what the host does beside it.
    "Average Step Time": 1000,
    "Kernel": 450,  # gemm 300 to 700, fused 800 to 850
    "Memcpy": 0,
    "Memset": 0,
    "Communication": 100,  # all-reduce 700 to 800
    "Runtime": 10,  # the first launch; the others lie below kernels
    "DataLoader": 200,
    "CPU Exec": 90,  # aten::mm without its launch
    "Other": 150,  # 850 to 1000
}


def gpu_trace() -> dict[str, Any]:
    """Two steps, each with a DataLoader, a matrix product, an all-reduce and a kernel launched by no operator."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0.0, "args": {}}]
    for step in range(STEPS):
        events += _step(step, 1000.0 * step, 10 * step)
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": events}


def _step(step: int, at: float, first_id: int) -> list[dict[str, Any]]:
    events = [
        _host("user_annotation", f"ProfilerStep#{step}", at, 1000, first_id + 1),
        _host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 200, first_id + 2),
        _host("cpu_op", "aten::mm", at + 200, 100, first_id + 3),
        _host("cpu_op", "record_param_comms", at + 390, 70, first_id + 4),
        _host("user_annotation", "nccl:all_reduce", at + 400, 50, first_id + 5),
        _host("cpu_op", "profkit.line#7", at + 190, 400, first_id + 6),
        _event("gpu_user_annotation", f"ProfilerStep#{step}", 0, 7, at + 300, 550, {"External id": first_id + 1}),
        {"ph": "s", "id": step, "pid": 9, "tid": 9, "ts": at + 200, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": step, "pid": 9, "tid": 9, "ts": at + 400, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
    ]
    events += _launch("cuda_runtime", at + 250, first_id + 3, "gemm", at + 300, 400, 7)
    events += _launch("cuda_driver", at + 420, first_id + 4, "ncclDevKernel_AllReduce", at + 700, 100, 20)
    events += _launch("cuda_driver", at + 510, first_id + 6, "fused", at + 800, 50, 7)
    return events


def _launch(
    category: str, at: float, external: int, kernel: str, start: float, duration: float, stream: int
) -> list[dict[str, Any]]:
    arguments = {"External id": external, "correlation": int(at)}
    on_device = {**arguments, "device": 0, "stream": stream}
    return [
        _event(category, "cudaLaunchKernel", 9, 9, at, 10, arguments),
        _event("kernel", kernel, 0, stream, start, duration, on_device),
    ]


def _host(category: str, name: str, at: float, duration: float, external: int) -> dict[str, Any]:
    return _event(category, name, 9, 9, at, duration, {"External id": external, "Ev Idx": external})


def _event(
    category: str, name: str, pid: int, tid: int, at: float, duration: float, arguments: dict[str, Any]
) -> dict[str, Any]:
    place = {"pid": pid, "tid": tid, "ts": at, "dur": float(duration)}
    return {"ph": "X", "cat": category, "name": name, **place, "args": arguments}
