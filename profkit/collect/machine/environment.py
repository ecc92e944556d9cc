"""The program's versions, device and machine, and the settings that change its speed.

The flags in ``run.json``::

    anomaly_mode, deterministic_algorithms, cudnn_benchmark, cudnn_deterministic, grad_enabled, autocast   bool
    matmul_precision          'highest', 'high' (TF32) or 'medium' (bfloat16)
    cudnn_tf32                bool, or None if this PyTorch cannot say
    default_dtype             'float32'
    torch_threads             threads of an operator on the CPU
    sync_debug_mode           0, 1 (warn) or 2 (error); only with CUDA
    env:<NAME>                value of an environment variable of `_VARIABLES`, if it is set
"""

from __future__ import annotations

import gc
import math
import os
import platform
import sys
from datetime import datetime, timezone
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import torch

from profkit.collect.machine.devices import cuda_is_used
from profkit.core.processor import multiplies_bfloat16, processor_name
from profkit.run.directory import Host, Run

Flags = dict[str, str | int | bool | None]

_VARIABLES = (
    "CUDA_LAUNCH_BLOCKING",
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_LOGS",
)
"""The only environment variables that are read, because others may hold secrets."""
_MAX_VALUE = 200
"""Real values of these are far shorter; the run's record must stay small whatever was set."""
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def describe_run(command: tuple[str, ...], target: str | None, variant: str | None) -> Run:
    """What is known about a run when it starts."""
    return Run(
        command=command,
        python=platform.python_version(),
        torch=str(torch.__version__),
        started=datetime.now(timezone.utc).astimezone().isoformat(timespec="seconds"),
        target=target,
        variant=variant,
        host=Host(
            cpus=count_cpus(),
            torch_threads=torch.get_num_threads(),
            memory_bytes=count_memory(),
            processor=processor_name(),
            bfloat16=multiplies_bfloat16(),
        ),
    )


def device_name() -> str:
    """The GPU that the program uses, or ``cpu`` if it has not initialised CUDA."""
    if cuda_is_used():
        return torch.cuda.get_device_name()
    return "cpu"


def device_uuid() -> str | None:
    """The GPU's identity in the driver's management library."""
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return None if uuid is None else str(uuid)


def count_cpus(cgroup: Path = _CGROUP) -> int:
    """The CPUs in the process's affinity mask, or fewer if its cgroup (version 2) has a lower quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return allowed if quota == "max" else max(1, min(allowed, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return allowed


def count_memory(cgroup: Path = _CGROUP) -> int:
    """The machine's memory, or less if the process's cgroup (version 2 or 1) has a lower limit."""
    limits = (_read_limit(cgroup / name) for name in _MEMORY_LIMITS)
    return min(int(psutil.virtual_memory().total), *limits)


def read_flags() -> Flags:
    """The settings in force on this thread."""
    flags: Flags = {
        "anomaly_mode": torch.is_anomaly_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "grad_enabled": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "matmul_precision": _matmul_precision(),
        "cudnn_tf32": _cudnn_tf32(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "torch_threads": torch.get_num_threads(),
        "gc_frozen": gc.get_freeze_count() > 0,
    }
    if cuda_is_used():
        flags["sync_debug_mode"] = torch.cuda.get_sync_debug_mode()
    set_here = [name for name in _VARIABLES if name in os.environ]
    return flags | {f"env:{name}": os.environ[name][:_MAX_VALUE] for name in set_here}


def _matmul_precision() -> str:
    """The older setting raises if the program uses the newer one, ``fp32_precision``."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        newer = getattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
        return {"tf32": "high", "bf16": "medium"}.get(newer, "highest")


def _cudnn_tf32() -> bool | None:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # as above
        return None


def _read_limit(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no cgroup, or "max"
        return sys.maxsize
