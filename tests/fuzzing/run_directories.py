"""Run directories: each file that profkit writes beside a trace damaged, and two of them compared."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

from profkit.core.errors import ProfkitError
from profkit.derive.facts import Facts
from profkit.diagnosis.compare import compare_paths
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Diagnosis
from profkit.run.directory import (
    ACCOUNT_FILE,
    CALLSITES_FILE,
    DEVICE_MEMORY_FILE,
    LIVE_FILE,
    RUN_FILE,
    SAMPLES_FILE,
    SNAPSHOT_FILE,
    SOURCES_FILE,
    STACKS_FILE,
    WORKERS_DIRECTORY,
    CallSite,
    DeviceMemorySample,
    LiveSample,
    LoadSample,
    Run,
)
from profkit.run.whole_run import Place, RunAccount
from profkit.trace.worker_records import LoaderRecord, WorkerSums
from tests.fuzzing import snapshots, traces
from tests.fuzzing.hostile import TEXTS, damage_bytes, damage_tree, json_of
from tests.fuzzing.reports import check_comparison, check_error, check_reports
from tests.fuzzing.running import Files, Kind, Odd
from tests.fuzzing.samples import sample

_TRACE = "host_1.1699.pt.trace.json"
_BEFORE, _AFTER = "before", "after"
Documents = dict[str, Any]


@cache
def seeds() -> tuple[tuple[bytes, Documents], ...]:
    """A trace of each kind, and JSON of all files beside it."""
    found = []
    for at, seed in enumerate(traces.seeds()):
        run = {name: sample(hint, name) for name, hint in get_type_hints(Run).items()} | {"trace": _TRACE}
        run |= {"schema": "profkit.run/1", "step_signal": ("optimizer", "profiler")[at % 2], "window": 1}
        run |= {"reference_step_ns": [800_000, 820_000, 810_000], "exit_status": 0, "identity": None}
        run |= {"out_of_memory": run["out_of_memory"] if at % 3 == 2 else None, "started": "2026-01-05T10:00:00"}
        if at % 2:
            run = {
                field.name: run[field.name] for field in fields(Run) if field.name in ("trace", "step_signal", "host")
            }
        sites = [{**sample(CallSite), "line": 10 + line} for line in range(3)]
        documents = {
            RUN_FILE: run,
            CALLSITES_FILE: sites,
            SOURCES_FILE: {"train.py": {str(line): f"    line {line}" for line in range(5, 16)}},
            LIVE_FILE: [{**sample(LiveSample), "step": step} for step in range(3)],
            SAMPLES_FILE: [{**sample(LoadSample), "time_ns": 500_000 * at} for at in range(5)],
            STACKS_FILE: {
                "period_ns": 5_000_000,
                "steps": 3,
                "threads": [{"kind": kind, "name": "", "time_ns": 10**9} for kind in ("main", "worker", "thread")],
                "sites": sites,
                "stacks": [
                    {"thread": at % 3, "lines": [0, 1 + at % 2], "callee": "copy.deepcopy", "time_ns": 10**8 * (at + 1)}
                    | {"batch_from": at % 3 - 1}
                    for at in range(6)
                ],
            },
            ACCOUNT_FILE: sample(RunAccount)
            | {"started_ns": 0, "begun_ns": 10**9, "until_ns": 61 * 10**9, "column_ns": 10**9, "is_over": True}
            | {"columns": [[[second % 3, 10**9]] for second in range(60)]}
            | {"memory": [[second * 10**9, (500 + 10 * second) << 20] for second in range(60)]}
            | {"places": [{**sample(Place), "site": site, "trains": at == 0} for at, site in enumerate(sites)]}
            | {
                "stacks": [
                    {"activity": kind, "places": [at], "time_ns": 20 * 10**9, "cpu_ns": 10**9}
                    | {"first_ns": at * 10**9, "last_ns": (57 + at) * 10**9, "looks": 400, "visits": 20}
                    for at, kind in enumerate(("backward", "network", "other"))
                ]
            },
            DEVICE_MEMORY_FILE: [{**sample(DeviceMemorySample), "step": step, "device": 0} for step in (0, 1, 2, -1)],
            f"{WORKERS_DIRECTORY}/loader0.json": sample(LoaderRecord) | {"loader": 0, "workers": 2},
            f"{WORKERS_DIRECTORY}/0-1.jsonl": [
                {"loader": 0, "worker": 1, "workers": 2, "asked_ns": 5, "begun_ns": 900},
                *({**sample(WorkerSums), "batches": 3 * (n + 1), "elapsed_ns": 10**6 * (n + 1)} for n in range(4)),
            ],
        }
        found.append((json.dumps(seed.document).encode(), documents))
    return tuple(found)


def make(rng: random.Random) -> Files:
    trace, documents = rng.choice(seeds())
    files: dict[str, bytes | Odd] = {}
    for side in (_BEFORE, _AFTER) if rng.random() < 0.1 else (_BEFORE,):
        files[f"{side}/{_TRACE}"] = trace if rng.random() < 0.95 else damage_bytes(rng, trace)
        chosen = rng.sample(list(documents), rng.choice((1, 1, 1, 2, 4)))
        for name, document in documents.items():
            files[f"{side}/{name}"] = _written(rng, name, document, name in chosen)
        if rng.random() < 0.05:
            files[f"{side}/{SNAPSHOT_FILE}"] = snapshots.damage(rng, rng.choice(snapshots.seeds()))
        if rng.random() < 0.1:
            del files[rng.choice(list(files))]
        if rng.random() < 0.05:
            files[rng.choice([*files, f"{side}/{SNAPSHOT_FILE}"])] = rng.choice(list(Odd))
    return files


def _written(rng: random.Random, name: str, document: Any, is_damaged: bool) -> bytes:
    if not is_damaged:
        return _lines_of(rng, document) if name.endswith(".jsonl") else json.dumps(document).encode()
    held = {"value": json.loads(json.dumps(document))}
    times = rng.choice((1, 1, 2, 5, 30))
    if rng.random() < 0.5 and isinstance(held["value"], (dict, list)) and held["value"]:
        plant(rng, held["value"], times)
    else:
        damage_tree(rng, held, times)
    value = held.get("value")
    content = _lines_of(rng, value) if name.endswith(".jsonl") and isinstance(value, list) else json_of(rng, value)
    return damage_bytes(rng, content) if rng.random() < 0.1 else content


def plant(rng: random.Random, document: Any, times: int) -> None:
    """Hostile text in place of text: of the right type, it reaches the reports."""
    for _ in range(times):
        at: Any = document
        key: Any = None
        while isinstance(at, (dict, list)) and at:
            holder, key = at, rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            at = holder[key]
        if isinstance(at, str):
            holder[key] = rng.choice((at + rng.choice(TEXTS), rng.choice(TEXTS)))
        elif isinstance(at, (int, float)) and not isinstance(at, bool):
            holder[key] = type(at)(rng.choice((0, -1, 1, 10**9, 2**53, 2**62, -(2**62))))


def _lines_of(rng: random.Random, values: list[Any]) -> bytes:
    return b"\n".join(json_of(rng, value) for value in values)


def read(folder: Path) -> Callable[[], tuple[Diagnosis, Path]]:
    facts = read_facts(folder / _BEFORE)
    return partial(_judge, facts, folder)


def _judge(facts: Facts, folder: Path) -> tuple[Diagnosis, Path]:
    return diagnose(facts), folder


def render(judged: tuple[Diagnosis, Path]) -> None:
    diagnosis, folder = judged
    check_reports(diagnosis)
    if (folder / _AFTER).is_dir():
        try:
            compared = compare_paths(folder / _BEFORE, folder / _AFTER, force=True)
        except ProfkitError as error:
            check_error(error, folder)
        else:
            check_comparison(compared)


KIND = Kind(
    "run_directories",
    20_000,
    make,
    read,
    render,
    judged_each=10,
    rendered_each=3,
    found=(
        "Side files that are not UTF-8 ended in UnicodeDecodeError, those nested deeply in RecursionError.",
        "A number of more than 64 bits in a side file ended in OverflowError.",
    ),
)
