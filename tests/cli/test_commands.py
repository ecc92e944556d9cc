"""Commands that only show something, and what the command line imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.diagnosis.catalogue import list_scenarios
from profkit.rules import all_rules
from profkit.rules.base import HEADINGS

TRACE = b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'


def profkit(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "profkit", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_the_help_names_every_command(tmp_path: Path) -> None:
    shown = profkit("--help", cwd=tmp_path)
    for name in ("compare", "diagnose", "doctor", "explain", "record", "rules", "scenarios", "tensorboard"):
        assert f"\n  {name} " in shown


def test_rules_lists_every_rule_with_its_summary(tmp_path: Path) -> None:
    shown = profkit("rules", cwd=tmp_path)
    for rule in all_rules().values():
        assert rule.name in shown.split()


@pytest.mark.parametrize("name", sorted(all_rules()))
def test_explain_shows_a_page_with_all_its_headings_in_order(tmp_path: Path, name: str) -> None:
    page = all_rules()[name].page
    places = [page.splitlines().index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert places[0] == 2


def test_rules_lists_those_that_contain_every_word(tmp_path: Path) -> None:
    found = json.loads(profkit("rules", "Transfer", "fault", "--format", "json", cwd=tmp_path))
    names = [rule.name for rule in all_rules().values() if "transfer" in f"{rule.name} {rule.summary}".lower()]
    assert "repeated-transfer" in names
    assert [one["name"] for one in found] == [name for name in names if all_rules()[name].kind.value == "fault"]
    assert set(found[0]) == {"name", "kind", "summary"}


def test_the_help_shows_whole_summaries(tmp_path: Path) -> None:
    assert "..." not in profkit("--help", cwd=tmp_path).partition("Commands:")[2]


def test_explain_prints_the_page(tmp_path: Path) -> None:
    shown = profkit("explain", "input-bound", cwd=tmp_path)
    assert shown == f"input-bound (fault)\n\n{all_rules()['input-bound'].page}\n"


def test_scenarios_lists_every_scenario(tmp_path: Path) -> None:
    shown = profkit("scenarios", cwd=tmp_path)
    for scenario in list_scenarios():
        assert scenario.name in shown.split()


def test_doctor_names_the_versions_that_matter(tmp_path: Path) -> None:
    shown = profkit("doctor", cwd=tmp_path)
    assert "torch " in shown
    assert "GPU kernels" in shown
    assert re.search(r"memory +[\d.,]+ GB/s\nproducts +float64 [\d,]+, float32 [\d,]+.* GFLOP/s", shown)


def test_a_trace_is_diagnosed_without_importing_torch_or_rich_for_json(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(TRACE)
    code = (
        "import sys\nfrom profkit.cli import group\n"
        "group(['diagnose', 'trace.json', '--format', 'json', '--output', 'out'], standalone_mode=False)\n"
        "assert not {'torch', 'rich', 'tensorboard', 'psutil'} & set(sys.modules), set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    printed = json.loads(result.stdout)
    assert printed["schema"] == "profkit.diagnosis/1"
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text()) == printed
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_the_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom profkit.cli import group\n"
        "group(['--help'], standalone_mode=False)\n"
        "assert not {'torch', 'rich', 'numpy', 'msgspec'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)


def test_a_piped_report_has_no_escape_codes_and_fits_80_columns(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(TRACE)
    shown = profkit("diagnose", "trace.json", "--output", "out", cwd=tmp_path)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
