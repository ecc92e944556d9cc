"""What PyTorch can use and record on this machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, supported_activities


@dataclass(frozen=True, slots=True)
class Devices:
    """The GPU that PyTorch would use, if any; the number of GPUs; whether kernels can be recorded; intra-op threads."""

    gpu: str | None
    gpus: int
    records_kernels: bool
    threads: int


def look_for_devices() -> Devices:
    return Devices(
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        gpus=torch.cuda.device_count(),
        records_kernels=ProfilerActivity.CUDA in supported_activities(),  # type: ignore[no-untyped-call]  # torch has no types here
        threads=torch.get_num_threads(),
    )


def cuda_is_used() -> bool:
    """Whether the program has initialised CUDA. Profkit never does, because the program may want to fork first or to
    choose its devices."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch gives no types here
