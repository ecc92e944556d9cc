"""The example of a GitHub Action: its YAML is an action's, its script runs, and what it asks profkit for exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import click
import pytest

from profkit.cli import group
from tests.traces import json_of, op, step

yaml = pytest.importorskip("yaml")
DOCS = Path(__file__).parents[1] / "docs"
ACTION: dict[str, Any] = yaml.safe_load((DOCS / "github-action" / "action.yml").read_text("utf-8"))
PAGE = (DOCS / "github-actions.md").read_text("utf-8")
SCRIPT: str = ACTION["runs"]["steps"][1]["run"]
RECORDED = DOCS.parent / "traces" / "recorded"
USES = "./.github/actions/profkit"


def workflow() -> dict[str, Any]:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def expressions(value: object) -> set[str]:
    """What stands between ``${{`` and ``}}`` anywhere inside."""
    return set(re.findall(r"\$\{\{\s*(.*?)\s*\}\}", json.dumps(value)))


def test_the_action_has_the_keys_of_a_composite_action() -> None:
    assert set(ACTION) == {"name", "description", "inputs", "outputs", "runs"}
    assert ACTION["runs"]["using"] == "composite"
    for one in ACTION["inputs"].values():
        assert isinstance(one["description"], str)
        assert set(one) <= {"description", "required", "default"}
        assert one.get("required") is True or isinstance(one["default"], str)
    for one in ACTION["outputs"].values():
        assert set(one) == {"description", "value"}
    for one in ACTION["runs"]["steps"]:
        assert one["shell"] == "bash"


def test_every_input_is_used_and_none_is_pasted_into_a_script() -> None:
    steps = ACTION["runs"]["steps"]
    assert expressions([one["env"] for one in steps]) == {f"inputs.{name}" for name in ACTION["inputs"]}
    assert expressions([one["run"] for one in steps]) == set()
    for one in steps:
        assert set(re.findall(r"\$\{?([A-Z_]+)\b", one["run"])) <= {
            *one["env"],
            "RUNNER_TEMP",
            "GITHUB_RUN_ID",
            "GITHUB_OUTPUT",
            "GITHUB_STEP_SUMMARY",
            "RANDOM",
        }


def test_every_output_is_written_by_the_script() -> None:
    assert expressions(ACTION["outputs"]) == {f"steps.diagnose.outputs.{name}" for name in ACTION["outputs"]}
    (formats,) = re.findall(r"for format in (.*); do", SCRIPT)
    assert set(ACTION["outputs"]) - set(formats.split()) == {"directory"}
    assert 'echo "directory=' in SCRIPT


def test_the_command_has_its_options_and_formats() -> None:
    command = group.get_command(click.Context(group), "diagnose")
    assert command is not None
    options = {name: one for one in command.params for name in one.opts}
    assert set(re.findall(r"(?<=[\s(])--[a-z-]+", SCRIPT)) <= set(options)
    formats = options["--format"].type
    assert isinstance(formats, click.Choice)
    assert {"github", "markdown", "sarif", "junit"} <= set(formats.choices)


def test_the_documented_workflow_uses_existing_inputs_and_outputs() -> None:
    (job,) = workflow()["jobs"].values()
    (using,) = [one for one in job["steps"] if one.get("uses") == USES]
    needed = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert needed <= set(using["with"]) <= set(ACTION["inputs"])
    conditions = {name for one in job["steps"] for name in re.findall(r"steps\.[\w.]+", one.get("if", ""))}
    taken = expressions(job["steps"]) | conditions
    assert taken <= {f"steps.{using['id']}.outputs.{name}" for name in ACTION["outputs"]}
    assert "permissions" in workflow()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs the script as a runner does, with profkit on the path; gives the process and what it set as outputs."""
    (tmp_path / "bin").mkdir()
    shim = tmp_path / "bin" / "profkit"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m profkit "$@"\n')
    shim.chmod(0o755)
    (tmp_path / "temp").mkdir()

    def run(target: str, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
        given = {"ARGUMENTS": "", "FAIL_ON": "", "FAIL_ON_OPPORTUNITY": "", **inputs, "TARGET": target}
        files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        runner = {**files, "RUNNER_TEMP": str(tmp_path / "temp"), "GITHUB_RUN_ID": "7", "PATH": path}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPT]
        result = subprocess.run(
            shell, cwd=tmp_path, env={**os.environ, **runner, **given}, capture_output=True, text=True, check=False
        )
        outputs = Path(files["GITHUB_OUTPUT"])
        lines = outputs.read_text().splitlines() if outputs.exists() else []
        return result, dict(line.split("=", 1) for line in lines)

    return run


def test_the_script_annotates_lines_writes_a_summary_and_keeps_the_reports(tmp_path: Path, run: Any) -> None:
    (tmp_path / "a trace.json").write_bytes(json_of([step(1, 0, 50), op("aten::mul", 10, 20)]))
    result, outputs = run("a trace.json", FAIL_ON="low")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("::notice title=profkit::")
    assert (Path(outputs["directory"]) / "report.html").is_file()
    assert json.loads(Path(outputs["sarif"]).read_text("utf-8"))["version"] == "2.1.0"
    assert Xml.parse(outputs["junit"]).getroot().tag == "testsuites"
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text("utf-8").startswith("## ")


def test_a_finding_that_fails_the_job_is_still_reported(run: Any) -> None:
    (recording,) = RECORDED.glob("*/gelu-by-hand/pitfall")
    result, outputs = run(str(recording), FAIL_ON_OPPORTUNITY="medium")
    assert result.returncode == 1
    assert set(outputs) == {"directory", "markdown", "sarif", "junit"}
    assert 'failures="1"' in Path(outputs["junit"]).read_text("utf-8")


def test_a_target_that_cannot_be_read_fails_with_profkit_s_status(tmp_path: Path, run: Any) -> None:
    result, outputs = run("absent.json")
    assert result.returncode == 2
    assert "absent.json" in result.stderr
    assert set(outputs) == {"directory"}


def test_no_input_is_run_as_a_command(tmp_path: Path, run: Any) -> None:
    result, _ = run('$(touch owned); "; touch owned; ', ARGUMENTS="$(touch owned)")
    assert result.returncode == 2
    assert not (tmp_path / "owned").exists()
