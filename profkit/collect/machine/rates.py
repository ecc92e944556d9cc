"""This machine's memory bandwidth and rates of matrix products, measured once and kept in the user's cache, one file
per device.

If the cache cannot be written nothing is kept. Figures read from it must be plausible.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec
import torch

from profkit.collect.program.clocks import time
from profkit.core.processor import processor_name
from profkit.run.directory import Rates

_MOST_BYTES = 1 << 16
_COPY_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
"""More than the caches hold, so that memory is measured (STREAM's rule: at least four times the cache)."""
_SIDE = {"cpu": 512, "cuda": 4096}
"""Large enough to be bound by arithmetic: a product of doubles has a twelfth of the side in operations per byte."""
_HAS_TF32 = (8, 0)
"""The first compute capability with TF32 in its tensor cores (CUDA C++ Programming Guide, table of capabilities)."""
_BY_EVENTS = {"cpu": "", "cuda": "|by events"}
"""Distinguishes these figures from a GPU's older ones, which include the launches and lack TF32."""
_TURNS = 20
"""Each takes milliseconds, so that some are undisturbed even on a busy machine."""
_LONG_S = 0.2
"""A type that takes longer for one product has no hardware units here: one measurement is enough."""
_AGREE = 1.2
"""Two measurements that differ by more were disturbed: they are used now but not kept."""
_Call = Callable[[], object]
_PLAUSIBLE = (1e6, 1e18)
"""Far below and far above any device: a figure outside means a damaged file."""


def read_rates(device: str) -> Rates | None:
    """The kept rates of this device; None if there are none that can be used."""
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        path = cache_file(device)
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            rates = msgspec.json.decode(path.read_bytes(), type=Rates)
            figures = (rates.bandwidth, *rates.products.values())
            if rates.device == _name(device) and all(_PLAUSIBLE[0] < one < _PLAUSIBLE[1] for one in figures):
                return rates
    return None


def keep_rates(device: str) -> Rates:
    """The rates of ``cpu`` or ``cuda``: from the cache, or measured now and kept if possible."""
    kept = read_rates(device)
    if kept is not None:
        return kept
    first, second = measure_rates(device), measure_rates(device)
    rates = _best_of(first, second)
    if not _agree(first, second):
        return rates
    with suppress(OSError):
        _write(cache_file(device), msgspec.json.encode(rates))
    return rates


def _write(path: Path, content: bytes) -> None:
    """Write the file atomically, so that no reader sees half of it. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    try:
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


def _best_of(first: Rates, second: Rates) -> Rates:
    kinds = [kind for kind in first.products if kind in second.products]
    products = {kind: max(first.products[kind], second.products[kind]) for kind in kinds}
    return Rates(first.device, max(first.bandwidth, second.bandwidth), products)


def _agree(first: Rates, second: Rates) -> bool:
    """Whether two measurements of one device agree."""
    pairs = [(first.bandwidth, second.bandwidth)]
    pairs += [
        (first.products.get(kind, 0.0), second.products.get(kind, 0.0)) for kind in {*first.products, *second.products}
    ]
    return all(max(pair) <= _AGREE * min(pair) for pair in pairs)


def cache_file(device: str) -> Path:
    """``$XDG_CACHE_HOME/profkit/rates-….json``, by default below ``~/.cache`` (XDG Base Directory Specification).

    Raises `OSError` for a user without a home.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~"), ".cache")
    if not root.is_absolute():
        raise FileNotFoundError(root)
    key = f"{_name(device)}|{torch.get_num_threads()}|{torch.__version__}{_BY_EVENTS[device]}"
    return root / "profkit" / f"rates-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def measure_rates(device: str, place: str = "") -> Rates:
    """Take the best of many turns, alternating between the types. Other load only adds to the time, and not in every
    turn. The tensors lie on the device, or on ``place`` instead."""
    count, side = _COPY_BYTES[device] // 4, _SIDE[device]
    source, target = (torch.rand(count, device=place or device) for _ in range(2))
    calls: dict[str, _Call] = {"copy": lambda: target.copy_(source)}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, *([torch.float16] if device == "cuda" else [])):
        matrix = torch.rand(side, side, device=place or device).to(dtype)
        calls[str(dtype).removeprefix("torch.")] = product = partial(torch.mm, matrix, matrix)
        if dtype == torch.float32 and device == "cuda":
            calls["float32"] = partial(_with_tf32, product, allowed=False)
            if torch.cuda.get_device_capability() >= _HAS_TF32:
                calls["tf32"] = partial(_with_tf32, product, allowed=True)
    best = _best_s(calls, _timed_by_events if device == "cuda" else _timed)
    bandwidth = 2.0 * 4 * count / best.pop("copy")
    return Rates(_name(device), bandwidth, {kind: 2.0 * side**3 / took for kind, took in best.items()})


def _with_tf32(product: _Call, allowed: bool) -> object:
    """The setting belongs to the process, so it is restored."""
    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, allowed
    try:
        return product()
    finally:
        settings.allow_tf32 = before


def _best_s(calls: Mapping[str, _Call], timed: Callable[[_Call], float]) -> dict[str, float]:
    """Each call's shortest time in seconds, without the first turn. A call that fails is left out."""
    best: dict[str, float] = {}
    slow: set[str] = set()
    for turn in range(_TURNS + 1):
        for name, call in calls.items():
            if name in slow:
                continue
            try:
                took = max(timed(call), 1e-9)
            except RuntimeError:  # this device or build has no product for the type
                slow.add(name)
                continue
            best[name] = took if turn <= 1 else min(best[name], took)
            if took > _LONG_S:
                slow.add(name)
    return best


def _timed(call: _Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _timed_by_events(call: _Call) -> float:
    """The device's time, without the launch, which takes longer than a product of half floats."""
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begun.record()
    call()
    ended.record()
    ended.synchronize()
    took_ms: float = begun.elapsed_time(ended)
    return took_ms / 1e3


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else processor_name()
