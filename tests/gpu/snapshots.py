"""Memory snapshots and a program without room, beside what PyTorch itself counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.gpu.children import Child
from tests.gpu.machine import CHECKOUT, Machine
from tests.gpu.rows import COULD_NOT, DONE, FAILED, Figure, Part, PartFailed, Row

_NAME = "memory"
_PROGRAM = "tests.gpu.programs.snapshots"
_SITUATIONS = ("whole-history", "late-history", "late-attention", "kept-graphs", "out-of-memory")
_OUT_OF_MEMORY = Path(__file__).parent / "programs" / "out_of_memory.py"
_LIMIT_S = 90.0
_PROGRAM_FAILED = 3


def rows(machine: Machine, left_s: Callable[[], float]) -> Iterator[Row]:
    yield _program_without_room(machine, left_s)
    if machine.device == "cpu":
        yield from (Row(_NAME, name, f"{COULD_NOT}a CPU's allocator keeps no history") for name in _SITUATIONS)
        return
    with ExitStack() as stack:
        files = {name: machine.work / f"{name}.pickle" for name in _SITUATIONS}
        children = {name: stack.enter_context(Child(name, _PROGRAM, name, str(file))) for name, file in files.items()}
        for name, child in children.items():
            try:
                truth = child.ask("take", min(_LIMIT_S, left_s()))
                diagnosis = diagnosed([str(files[name])], machine.work / f"{name}-diagnosis", left_s())
            except PartFailed as error:
                yield Row(_NAME, name, f"{FAILED}{error}")
                continue
            finally:
                child.kill()  # it holds gigabytes
            yield Row(
                _NAME, name, figures=compared(truth, diagnosis), recordings={f"snapshots/{name}.pickle": files[name]}
            )


def _program_without_room(machine: Machine, left_s: Callable[[], float]) -> Row:
    """A program that ends with an error is diagnosed all the same."""
    name, directory = "a program without room", machine.work / "without-room"
    try:
        diagnosis = diagnosed(
            [str(_OUT_OF_MEMORY), "--", machine.device], directory, left_s(), expected_status=_PROGRAM_FAILED
        )
    except PartFailed as error:
        return Row(_NAME, name, f"{FAILED}{error}")
    figures: dict[str, Figure] = {"headline": headline(diagnosis), "findings": findings(diagnosis)}
    if machine.device == "cpu":
        figures["stand-in"] = "one absurd request of a CPU"
    recordings = {f"programs/{machine.slug}/without-room": directory}
    named = "out-of-memory" in findings(diagnosis)
    return Row(
        _NAME, name, DONE if named or machine.device == "cpu" else "not called out of memory", figures, recordings
    )


def diagnosed(target: list[str], output: Path, limit_s: float, expected_status: int = 0) -> Mapping[str, Any]:
    """What ``profkit diagnose`` writes about a target."""
    first, *arguments = target
    command = [sys.executable, "-m", "profkit", "diagnose", first, "--output", str(output), *arguments]
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(1.0, min(_LIMIT_S, limit_s)), cwd=CHECKOUT
        )
    except subprocess.TimeoutExpired:
        raise PartFailed(f"profkit diagnose {Path(first).name} did not end in time") from None
    written = output / "diagnosis.json"
    if ran.returncode != expected_status or not written.is_file():
        said = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise PartFailed(f"profkit diagnose {Path(first).name} ended with {ran.returncode}: {said}")
    told: Mapping[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    return told


def compared(truth: Mapping[str, int], diagnosis: Mapping[str, Any]) -> dict[str, Figure]:
    """Bytes that PyTorch counted, and those that profkit says."""
    memory = (diagnosis["memory"] or [{}])[0]
    parts = {part["label"]: part["bytes"] for part in memory.get("parts", ())}
    return {
        "peak": truth["allocated_bytes.all.peak"],
        "peak said": memory.get("peak_bytes"),
        "reserved": truth["reserved_bytes.all.peak"],
        "reserved said": memory.get("reserved_peak_bytes"),
        "parameters": truth.get("parameters_bytes"),
        "parameters said": parts.get("parameters and buffers"),
        "state": truth.get("state_bytes"),
        "state said": parts.get("optimizer state"),
        "score table": truth.get("score_table_bytes"),
        "headline": headline(diagnosis),
        "findings": findings(diagnosis),
    }


def headline(diagnosis: Mapping[str, Any]) -> str:
    return str((diagnosis["verdict"] or {}).get("text", ""))


def findings(diagnosis: Mapping[str, Any]) -> str:
    return ", ".join(finding["rule"] for finding in diagnosis["findings"][:4])


PART = Part(_NAME, "snapshots, whole and late histories, and programs without room", 0.12, rows)
