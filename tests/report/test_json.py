"""diagnosis.json: its form, and reading it back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profkit.core.errors import UnreadableInput
from profkit.findings.values import DeviceMemory, Diagnosis, Finding, MemorySeries, MemoryTimeline, Verdict, VerdictKind
from profkit.report import json as report_json
from profkit.report.html.page import render_html
from profkit.report.json import parse_json, render_json

FULL = {
    "run": {
        "command": ["python", "train.py"],
        "python": "3.11.2",
        "torch": "2.13.0",
        "device": "cpu",
        "started": None,
        "files": {"trace": "a.pt.trace.json.gz"},
    },
    "timing": {
        "steps": 5,
        "step_time_ns": 12_300_000,
        "steps_from": "the profiler's step marks",
        "unprofiled_step_time_ns": 11_000_000,
        "profiler_overhead_fraction": 0.118,
        "shares": [
            {"label": "forward", "time_ns_per_step": 9_000_000, "fraction": 0.732},
            {"label": "unexplained", "time_ns_per_step": 300_000, "fraction": 0.024},
        ],
        "measured_steps": None,
        "unprofiled_from": None,
        "bound_by": None,
        "device_step_time_ns": None,
        "host_step_time_ns": None,
        "unprofiled_least_time_ns": None,
        "communication_ns": None,
        "communication_hidden": None,
        "recorded_bound_by": None,
        "recorded_shares": [],
        "unprofiled_most_time_ns": None,
        "held_up_step_time_ns": None,
        "exchange_rates": [],
        "beside_communication": None,
    },
    "findings": [
        {
            "rule": "retained-graph",
            "kind": "fault",
            "severity": "high",
            "message": "The list `losses` keeps the graph of every step alive.",
            "count": 5,
            "confidence": 0.9,
            "fix": "Append the number, not the graph:\n    losses.append(loss.detach())",
            "location": {
                "file": "train.py",
                "line": 31,
                "function": "train_step",
                "source": "losses.append(loss)",
                "precision": "call",
                "around": [],
                "around_from": 0,
            },
            "also": [
                {
                    "file": "train.py",
                    "line": 44,
                    "function": "evaluate",
                    "source": "",
                    "precision": "call",
                    "around": [],
                    "around_from": 0,
                }
            ],
            "saving": {
                "time_ns_per_step": 5_300_000,
                "fraction": 0.43,
                "low": 0.3,
                "high": 0.5,
                "bytes": 4_000_000,
                "of_part": False,
                "beyond": None,
                "run_ns": 0,
            },
            "evidence": {"growth_bytes_per_step": 4_000_000},
            "change": None,
            "account": None,
            "in_run": [],
        },
        {
            "rule": "launch-bound",
            "kind": "opportunity",
            "severity": "medium",
            "message": "The operators are small.",
            "count": 1,
            "confidence": 0.6,
            "fix": "torch.compile(model)",
            "location": {
                "file": "/home/user/models/network.py",
                "line": 12,
                "function": "forward",
                "source": "",
                "precision": "def",
                "around": [],
                "around_from": 0,
            },
            "also": [],
            "saving": {
                "time_ns_per_step": 1_000_000,
                "fraction": 0.08,
                "low": 0.08,
                "high": 0.08,
                "bytes": 0,
                "of_part": False,
                "beyond": None,
                "run_ns": 0,
            },
            "evidence": {},
            "change": None,
            "account": None,
            "in_run": [],
        },
        {
            "rule": "zero-filled-gradients",
            "kind": "fault",
            "severity": "info",
            "message": "Gradients are filled with zeros.",
            "count": 5,
            "confidence": 1.0,
            "fix": "Leave set_to_none alone.",
            "location": None,
            "also": [],
            "saving": None,
            "evidence": {},
            "change": None,
            "account": None,
            "in_run": [],
        },
    ],
    "skipped": {"pageable-transfer": "the recording holds no GPU", "fragmentation": "the recording holds no GPU"},
    "health": ["The trace was cut off: 3 of 8 steps are missing."],
    "total": None,
    "workers": [],
    "verdict": {"kind": "found", "text": "1 fault costs 43 % of the step: retained-graph at train.py:31"},
    "cannot_judge": None,
    "hottest": [],
    "costliest": [],
    "kernels": [],
    "roofline": None,
    "serving": [],
    "memory": [],
    "failure": None,
    "peaks": [],
    "pictures": None,
    "ignored": {},
    "launch": None,
    "whole_run": None,
    "elsewhere": None,
    "schema": "profkit.diagnosis/1",
}


def test_the_diagnosis_is_written_in_the_order_of_the_contract(full_diagnosis: Diagnosis) -> None:
    verdict = Verdict(VerdictKind.FOUND, "1 fault costs 43 % of the step: retained-graph at train.py:31")
    text = render_json(replace(full_diagnosis, verdict=verdict))
    assert json.loads(text) == FULL
    keys = ["run", "timing", "findings", "skipped", "health", "total", "workers", "verdict", "cannot_judge", "hottest"]
    assert list(json.loads(text)) == [
        *keys,
        "costliest",
        "kernels",
        "roofline",
        "serving",
        "memory",
        "failure",
        "peaks",
        "pictures",
        "ignored",
        "launch",
        "whole_run",
        "elsewhere",
        "schema",
    ]


def test_pictures_are_written_on_one_line_and_read_back(drawn_diagnosis: Diagnosis) -> None:
    text = render_json(drawn_diagnosis)
    (line,) = [line for line in text.splitlines() if '"pictures"' in line]
    assert line.startswith('  "pictures": {"parts":["device: computing"')
    assert parse_json(text.encode()) == drawn_diagnosis


def test_text_that_looks_like_the_key_of_the_pictures_stays_text(drawn_diagnosis: Diagnosis) -> None:
    looks = replace(drawn_diagnosis, health=('\n  "pictures": null', '"pictures": null'))
    assert parse_json(render_json(looks).encode()) == looks


def test_a_written_diagnosis_reads_back_the_same(full_diagnosis: Diagnosis, empty_diagnosis: Diagnosis) -> None:
    for diagnosis in (full_diagnosis, empty_diagnosis):
        assert parse_json(render_json(diagnosis).encode()) == diagnosis


def test_a_diagnosis_older_than_verdicts_can_be_read(full_diagnosis: Diagnosis) -> None:
    value = json.loads(render_json(full_diagnosis))
    for key in ("verdict", "total", "workers"):
        del value[key]
    for key in (
        "unprofiled_from",
        "bound_by",
        "device_step_time_ns",
        "host_step_time_ns",
        "unprofiled_least_time_ns",
        "communication_ns",
        "communication_hidden",
        "unprofiled_most_time_ns",
        "held_up_step_time_ns",
    ):
        del value["timing"][key]
    assert parse_json(json.dumps(value).encode()) == full_diagnosis


def test_keys_of_a_later_version_are_ignored(clean_diagnosis: Diagnosis) -> None:
    value = json.loads(render_json(clean_diagnosis))
    value["later"] = value["timing"]["later"] = 1
    assert parse_json(json.dumps(value).encode()) == clean_diagnosis


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"run": 1}', b"\xff\xfe", b"[" * 100_000])
def test_anything_else_is_refused_with_the_file_name(data: bytes) -> None:
    with pytest.raises(UnreadableInput, match=r"^runs.a.json: is not a diagnosis that profkit wrote: "):
        parse_json(data, Path("runs") / "a.json")


def test_another_schema_is_refused_by_name(clean_diagnosis: Diagnosis) -> None:
    other = render_json(replace(clean_diagnosis, schema="profkit.diagnosis/2"))
    with pytest.raises(UnreadableInput, match=r"has the schema 'profkit.diagnosis/2'; this profkit reads"):
        parse_json(other.encode())


def _shorten(found: Any, path: str) -> None:
    *way, last = path.split(".")
    for key in way:
        found = found[int(key) if key.isdigit() else key]
    found[last] = found[last][:-1]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("memory.0.timeline.entries", "the columns of a memory timeline have 1 and 2 entries"),
        ("memory.0.timeline.reserved_bytes", "the columns of a memory timeline have 1 and 2 entries"),
        ("memory.0.timeline.parts.1.bytes", "the columns of a memory timeline have 1 and 2 entries"),
        ("pictures.parts", "the parts of the steps have"),
        ("pictures.steps.0.parts", "the parts of the steps have"),
        ("launch.picture.steps", "the columns of the ranks have"),
        ("launch.picture.rows.0.caused", "the columns of the ranks have"),
        ("launch.picture.rows.0.waited", "the columns of the ranks have"),
    ],
)
def test_columns_of_unequal_length_are_refused(launched_diagnosis: Diagnosis, path: str, what: str) -> None:
    series = tuple(MemorySeries(label, (1, 2)) for label in ("parameters", "gradients"))
    memory = DeviceMemory(0, 1, 1, 0, 0, 0, 2, 2, 0, timeline=MemoryTimeline((0, 1), (3, 4), series))
    found = json.loads(render_json(replace(launched_diagnosis, memory=(memory,))))
    parse_json(json.dumps(found).encode())
    _shorten(found, path)
    with pytest.raises(UnreadableInput, match=what):
        parse_json(json.dumps(found).encode())


@pytest.mark.parametrize(("number", "is_read"), [(2**70, True), (10**400, False)])
def test_a_number_that_no_report_could_show_is_refused(clean_diagnosis: Diagnosis, number: int, is_read: bool) -> None:
    data = render_json(clean_diagnosis).replace("12300000", str(number)).encode()
    if is_read:
        assert render_html(parse_json(data))
    else:
        with pytest.raises(UnreadableInput, match="more than 512 bits"):
            parse_json(data)


def test_a_file_above_the_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch, clean_diagnosis: Diagnosis) -> None:
    monkeypatch.setattr(report_json, "MAX_BYTES", 1 << 20)
    with pytest.raises(UnreadableInput, match="is larger than 1 MiB"):
        parse_json(render_json(clean_diagnosis).encode() + b" " * (1 << 20))


def test_values_that_json_cannot_express_are_still_written(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    odd = replace(leak, message="a\ud800b", evidence={"ratio": math.nan, "most": math.inf})
    back = parse_json(render_json(replace(clean_diagnosis, findings=(odd,))).encode())
    assert back.findings[0].message == "a?b"
    assert back.findings[0].evidence == {"ratio": "nan", "most": "inf"}
