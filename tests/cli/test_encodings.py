"""Reports can be written in any encoding, even one without µ."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.traces import json_of, op, step

TRACE = "trace.json"
PRINTED = """
import profkit
print(profkit.diagnose("trace.json"))
"""


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    events = [event for at in range(0, 400, 100) for event in (step(at // 100, at, 100), op("aten::mm", at, 90))]
    (tmp_path / TRACE).write_bytes(json_of(events))
    (tmp_path / "printed.py").write_text(PRINTED, encoding="utf-8")
    return tmp_path


def output(arguments: list[str], encoding: dict[str, str], cwd: Path) -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env={**environment, **encoding}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("encoding", "figure"),
    [
        ({"PYTHONIOENCODING": "utf-8"}, "100 µs".encode()),
        ({"LANG": "C", "LC_ALL": "C"}, "100 µs".encode()),  # Python takes such a terminal for one of UTF-8 (PEP 538)
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, b"100 us"),
        ({"PYTHONIOENCODING": "ascii"}, b"100 us"),
        ({"PYTHONIOENCODING": "latin-1"}, "100 µs".encode("latin-1")),
        ({"PYTHONIOENCODING": "cp437"}, "100 µs".encode("cp437")),
        ({"PYTHONIOENCODING": "koi8-r"}, b"100 us"),
    ],
    ids=str,
)
@pytest.mark.parametrize("arguments", [["-m", "profkit", "diagnose", TRACE], ["printed.py"]], ids=["cli", "print"])
def test_a_report_is_printed_in_any_encoding(
    traced: Path, arguments: list[str], encoding: dict[str, str], figure: bytes
) -> None:
    assert figure in output(arguments, encoding, traced)


def test_the_pages_of_rules_are_printed_in_ascii(tmp_path: Path) -> None:
    assert b"n^2" in output(["-m", "profkit", "explain", "missing-kv-cache"], {"PYTHONIOENCODING": "ascii"}, tmp_path)
