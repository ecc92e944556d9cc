"""Recordings of loops over a DataLoader."""

from __future__ import annotations

from typing import Any

from profkit.rules.base import Suspicion
from profkit.rules.input_bound import input_bound
from profkit.run.directory import Feeding, Host, LoaderUse, Run
from tests.traces import annotation, kernel, op, runtime, step

Json = dict[str, Any]


SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def find(facts) -> list[Suspicion]:
    return list(input_bound.check(facts))


def batches(
    waits_us: list[float], name: str = SINGLE, work_us: float = 60, extra: list[Json] | None = None
) -> list[Json]:
    """Steps that each wait for a batch and then compute on the CPU for ``work_us``; ``extra`` lies in each wait."""
    events, now = [], 0.0
    for i, wait in enumerate(waits_us):
        events += [step(i, now, wait + work_us), annotation(name, now, wait), op("aten::mm", now + wait, work_us)]
        events += [{**event, "ts": event["ts"] + now} for event in extra or []]
        now += wait + work_us
    return events


def run_on(cpus: int, threads: int = 1, workers: int | None = None, feeding: Feeding | None = None) -> Run:
    loaders = () if workers is None else (LoaderUse(workers, 8, pin_memory=False, persistent_workers=False),)
    return Run(host=Host(cpus, threads, 8 << 30), loaders=loaders, feeding=feeding)


def on_device(waits_us: list[float], busy_us: float, name: str = SINGLE) -> list[Json]:
    """Steps of ``wait + 60`` µs whose kernel, launched after the wait, keeps the device busy for ``busy_us``; before
    the first of them the device is at the work of a step that was not recorded."""
    before = [
        op("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 1, 2, correlation=99),
        kernel("k", 5, 60 + min(busy_us, waits_us[0]), correlation=99),
    ]
    events, now = before, 60.0
    for i, wait in enumerate(waits_us):
        launch = now + wait
        events += [
            step(i, now, wait + 60),
            annotation(name, now, wait),
            op("aten::mm", launch, 10),
            runtime("cudaLaunchKernel", launch + 1, 2, correlation=i + 1),
            kernel("k", launch + 5, busy_us, correlation=i + 1),
        ]
        now = launch + 60
    return events
