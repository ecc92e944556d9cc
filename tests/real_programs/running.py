"""One turn of a program, bare or under profkit, and what comparing two turns says."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.real_programs.programs import Program
from tests.real_programs.staging import script_in

_CHECKOUT = Path(__file__).parents[2]
_BUDGET_S, _BUDGET_SHARE = 5.0, 0.1
"""What profkit may cost a program: five seconds or a tenth, whichever is more."""
_JUDGED = ("medium", "high")
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the order of a set of names, by which some number their classes
    "MPLBACKEND": "Agg",
    "COLUMNS": "80",
    "HF_HUB_OFFLINE": "1",
    "PROFKIT_STRICT": "",
}


def compile_profkit() -> None:
    """Compile profkit's modules once, as where it is installed. Where ``PYTHONDONTWRITEBYTECODE`` is set, a checkout's
    are compiled anew by each process: two and a half seconds of a diagnosis, which would count as profkit's."""
    compileall.compile_dir(_CHECKOUT / "profkit", quiet=2)


@dataclass(frozen=True)
class Turn:
    status: int
    wall_s: float
    cpu_s: float
    output: str
    errors: str


@dataclass(frozen=True)
class Found:
    rule: str
    severity: str
    where: str
    message: str
    fraction: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    name: str
    absent: str = ""
    error: str = ""
    """Why there is nothing to compare though the program is there."""
    status: tuple[int, int] = (0, 0)
    """Bare, under profkit."""
    same_output: bool | None = None
    """None: not compared, as two bare runs differ."""
    difference: str = ""
    bare_s: float = 0.0
    profkit_s: float = 0.0
    bare_cpu_s: float = 0.0
    profkit_cpu_s: float = 0.0
    verdict: str = ""
    findings: tuple[Found, ...] = ()

    @property
    def overhead_s(self) -> float:
        return self.profkit_s - self.bare_s

    @property
    def in_budget(self) -> bool:
        return within_budget(self.bare_s, self.profkit_s)


def within_budget(bare_s: float, profkit_s: float) -> bool:
    return profkit_s - bare_s <= max(_BUDGET_S, _BUDGET_SHARE * bare_s)


def masked(text: str, masks: Sequence[str]) -> list[str]:
    """The lines with what may differ between two runs taken out."""
    for mask in masks:
        text = re.sub(mask, "#", text)
    return [line.rstrip() for line in text.replace("\r", "\n").splitlines()]


def first_difference(bare: str, watched: str, masks: Sequence[str]) -> str:
    """The first line that differs; profkit's report may follow what the program wrote."""
    expected, got = masked(bare, masks), masked(watched, masks)
    for number, line in enumerate(expected):
        there = got[number] if number < len(got) else "(nothing)"
        if line != there:
            return f"line {number + 1}: {line[:80]!r} became {there[:80]!r}"
    return ""


def turn(program: Program, staged: Path, at: Path, limit_s: float, recording: Path | None = None) -> Turn:
    """Run the program in a fresh copy, always at the same path, as programs print where they are."""
    shutil.rmtree(at, ignore_errors=True)
    shutil.copytree(staged, at, symlinks=True)
    script = str(script_in(program, at).relative_to(at / program.started_in))
    command = [sys.executable, script, *program.arguments]
    if recording is not None:
        command = [
            sys.executable,
            "-m",
            "profkit",
            "diagnose",
            "--output",
            str(recording),
            script,
            "--",
            *program.arguments,
        ]
    paths = (str(at), str(_CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | _ENVIRONMENT
    output, errors = at.with_suffix(".out"), at.with_suffix(".err")
    started = time.perf_counter()
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=at / program.started_in,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            cpu_s, status = _wait(process, started + limit_s)
        except BaseException:  # interrupted: the program is in a session of its own, which nothing else ends
            os.killpg(process.pid, signal.SIGKILL)
            raise
    wall_s = time.perf_counter() - started
    return Turn(status, wall_s, cpu_s, output.read_text(errors="replace"), errors.read_text(errors="replace"))


def _wait(process: subprocess.Popen[bytes], until: float) -> tuple[float, int]:
    """The processor time of the process and its children, and its exit status; all are killed when it is late."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage.ru_utime + usage.ru_stime, process.returncode
        if time.perf_counter() > until:
            os.killpg(process.pid, signal.SIGKILL)
            until = float("inf")
        time.sleep(0.01)


def findings_in(recording: Path) -> tuple[str, tuple[Found, ...]]:
    """The headline, and the findings of medium and above, of a run directory."""
    diagnosis: dict[str, Any] = json.loads((recording / "diagnosis.json").read_text(encoding="utf-8"))
    found = tuple(_found(finding) for finding in diagnosis["findings"] if finding["severity"] in _JUDGED)
    return diagnosis["verdict"]["text"], found


def _found(finding: dict[str, Any]) -> Found:
    location, saving = finding["location"], finding["saving"] or {}
    where = f"{location['file']}:{location['line']}" if location else "(no line)"
    return Found(
        finding["rule"],
        finding["severity"],
        where,
        finding["message"],
        saving.get("fraction"),
        saving.get("low"),
        saving.get("high"),
    )


def compared(
    program: Program, bare: Sequence[Turn], watched: Sequence[Turn], verdict: str, findings: tuple[Found, ...]
) -> Row:
    pairs = () if program.differs else zip(bare, watched, strict=True)
    differences = (first_difference(one.output, other.output, program.masks) for one, other in pairs)
    difference = next(filter(None, differences), "")
    return Row(
        program.name,
        status=(bare[-1].status, watched[-1].status),
        same_output=None if program.differs else not difference,
        difference=program.differs or difference,
        bare_s=median(one.wall_s for one in bare),
        profkit_s=median(one.wall_s for one in watched),
        bare_cpu_s=median(one.cpu_s for one in bare),
        profkit_cpu_s=median(one.cpu_s for one in watched),
        verdict=verdict,
        findings=findings,
    )
