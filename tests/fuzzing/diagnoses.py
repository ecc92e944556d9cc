"""``diagnosis.json`` from anybody: what a report, TensorBoard's tab or a comparison shows of it is escaped."""

from __future__ import annotations

import json
import random
import typing
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from profkit.derive.facts import Facts
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import Diagnosis, Finding, LaunchSummary
from profkit.integrations.tensorboard.runs import id_of, row_of
from profkit.report import FORMATS, render
from profkit.report.json import load_json, render_json
from profkit.report.sharing.anonymous import share
from profkit.run.directory import DIAGNOSIS_FILE
from profkit.trace.events import no_trace
from profkit.trace.snapshot.reader import read_snapshot
from tests.fuzzing import traces
from tests.fuzzing.hostile import damage_bytes, damage_tree, json_of
from tests.fuzzing.reports import check_reports, expect
from tests.fuzzing.run_directories import plant
from tests.fuzzing.running import Files, Kind, Odd
from tests.fuzzing.samples import sample
from tests.fuzzing.snapshots import RECORDED
from tests.report.conftest import launch_of
from tests.traces import trace_of_bytes


@cache
def seeds() -> tuple[dict[str, Any], ...]:
    """Of traces, of a snapshot, of a launch, and with a finding that has all fields."""
    found = [
        diagnose(Facts(trace_of_bytes(json.dumps(seed.document).encode()), seed.run, seed.callsites))
        for seed in traces.seeds()[2:5]
    ]
    found.append(diagnose(Facts(no_trace(), snapshot=read_snapshot(RECORDED / "out_of_memory.pickle.gz"))))
    documents = [json.loads(render_json(one)) for one in found]
    hints = typing.get_type_hints(Finding)
    full = {name: sample(hint, name) for name, hint in hints.items()} | {"kind": "fault", "severity": "high"}
    full["rule"], full["evidence"] = "launch-bound", {"waited_ns_per_step": 5, "share": 0.5, "name": "x"}
    full["also"] = [{**place, "precision": "def"} for place in full["also"]]
    documents[0]["findings"] = [full, {**full, "severity": "low", "kind": "opportunity", "rule": "input-bound"}]
    launch = json.loads(render_json(_with_launch(found[1], launch_of(4))))
    return (*documents, launch)


def _with_launch(diagnosis: Diagnosis, launch: LaunchSummary) -> Diagnosis:
    return replace(diagnosis, launch=launch)


@cache
def _texts() -> tuple[str, ...]:
    return tuple(json.dumps(document) for document in seeds())


def make(rng: random.Random) -> Files:
    if rng.random() < 0.01:
        return {f"run/{DIAGNOSIS_FILE}": rng.choice(list(Odd))}
    document = json.loads(rng.choice(_texts()))
    if rng.random() < 0.75:
        part = (
            document
            if rng.random() < 0.3
            else rng.choice([one for one in document.values() if one and isinstance(one, (dict, list))])
        )
        plant(rng, part, rng.choice((1, 3, 10, 60)))
    else:
        damage_tree(rng, document, rng.choice((1, 1, 2, 5)))
    content = json_of(rng, document)
    return {f"run/{DIAGNOSIS_FILE}": damage_bytes(rng, content) if rng.random() < 0.1 else content}


def read(folder: Path) -> Callable[[], tuple[Diagnosis, Path]]:
    diagnosis = load_json(folder / "run" / DIAGNOSIS_FILE)
    return partial(_render_all, diagnosis, folder / "run")


def _render_all(diagnosis: Diagnosis, folder: Path) -> tuple[Diagnosis, Path]:
    for name in set(FORMATS) - {"memory-timeline"}:  # which needs a snapshot
        render(diagnosis, name)
    return diagnosis, folder


def check(rendered: tuple[Diagnosis, Path]) -> None:
    """The reports, those of the diagnosis made anonymous, and the tab's row."""
    diagnosis, folder = rendered
    check_reports(diagnosis)
    check_reports(share(diagnosis, [Path("/home/user")]))
    row = asdict(row_of(id_of(folder.name), folder))
    json.loads(json.dumps(row, allow_nan=False))
    for text in row.values():
        expect(not isinstance(text, str) or text.isprintable(), f"{text!r:.100} in the tab's list")


KIND = Kind(
    "diagnoses",
    20_000,
    make,
    read,
    check,
    judged_each=5,
    rendered_each=3,
    found=(
        "A number too large for a float ended in OverflowError in the page.",
        "A table whose parts have no names ended in ValueError in a terminal's report.",
        "Text that begins with a dash or a number was a list in Markdown.",
        "`hooks[0](x)` in a message was a link to viewers of SARIF.",
    ),
)
