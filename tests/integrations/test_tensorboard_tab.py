"""profkit's tab: what it finds, what it answers, and a real TensorBoard with it in a browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from werkzeug.test import Client, TestResponse

from profkit.findings import Diagnosis, Finding, Kind, RunSummary, Saving, Severity, Timing
from profkit.integrations.tensorboard.plugin import Plugin
from profkit.integrations.tensorboard.runs import find_runs, row_of
from profkit.integrations.tensorboard.tab import ProfkitTab
from profkit.report.json import render_json

FINDING = Finding("cat-in-loop", Kind.FAULT, Severity.HIGH, "It grows.", 1, 0.9, "Do not.",
                  saving=Saving(4_000_000, 0.4, 0.3, 0.5))  # fmt: skip
HOSTILE = "<script>alert(1)</script>"


def write_run(folder: Path, *findings: Finding, step_ns: int = 10_000_000, day: int = 1) -> Path:
    folder.mkdir(parents=True)
    run = RunSummary(("train.py",), None, None, None, f"2026-01-0{day}T10:00:00")
    diagnosis = Diagnosis(run, Timing(4, step_ns, ""), findings, {}, ())
    (folder / "diagnosis.json").write_text(render_json(diagnosis))
    return folder


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write_run(tmp_path / "train" / "1", FINDING)
    write_run(tmp_path / "train" / "2", step_ns=6_000_000, day=2)
    return tmp_path


@pytest.fixture
def ask(logdir: Path) -> Iterator[object]:
    apps = Plugin(str(logdir)).get_plugin_apps()

    def get(route: str, **query: str) -> TestResponse:
        return Client(apps[route]).get("/", query_string=query)

    return get


def test_runs_are_found_by_their_diagnoses_and_named_below_the_log_directory(logdir: Path) -> None:
    (logdir / ".hidden").mkdir()
    shutil.copy(logdir / "train" / "1" / "diagnosis.json", logdir / ".hidden")
    assert set(find_runs(str(logdir))) == {"train/1", "train/2"}
    assert set(find_runs(str(logdir / "train" / "1"))) == {"1"}
    assert set(find_runs(f"a:{logdir}/train/1,bc:{logdir}/train")) == {"1", "2"}
    assert find_runs(str(logdir / "absent")) == {}


def test_a_run_is_told_in_a_row(logdir: Path) -> None:
    row = row_of("train/1", logdir / "train" / "1")
    assert (row.step_ns, row.saving, row.worst) == (10_000_000, 0.4, "high")
    assert row.verdict == "1 fault costs 40 % (30 to 50) of the step: cat-in-loop"
    assert row_of("train/2", logdir / "train" / "2").worst == ""


def test_a_run_whose_diagnosis_is_broken_says_so(logdir: Path) -> None:
    (logdir / "train" / "1" / "diagnosis.json").write_text("{")
    row = row_of("train/1", logdir / "train" / "1")
    assert "is not a diagnosis that profkit wrote" in row.verdict
    assert row.step_ns is None


def test_the_list_and_the_report_are_served(ask) -> None:
    rows = ask("/runs").get_json()
    assert {row["name"] for row in rows} == {"train/1", "train/2"}
    report = ask("/report", run="train/1")
    assert report.status_code == 200
    assert report.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "cat-in-loop" in report.text


@pytest.mark.parametrize("name", ["", "../..", "/etc", "train", "train/3"])
def test_a_name_that_is_no_run_is_no_path(ask, name: str) -> None:
    assert ask("/report", run=name).status_code == 404
    assert ask("/compare", before=name, after="train/1").status_code == 404


def test_runs_without_their_traces_cannot_be_compared_and_that_is_said(ask) -> None:
    answer = ask("/compare", before="train/1", after="train/2")
    assert answer.status_code == 500
    assert "holds no trace" in answer.text


def test_the_tab_is_there_if_there_is_a_run(logdir: Path, tmp_path: Path) -> None:
    def load(folder: Path) -> Plugin:
        return ProfkitTab().load(SimpleNamespace(logdir=str(folder), flags=SimpleNamespace()))

    assert load(logdir).is_active()
    assert not load(tmp_path / "absent").is_active()
    assert ProfkitTab().load(SimpleNamespace(logdir="", flags=SimpleNamespace())) is None


def test_what_tensorboard_loads_imports_next_to_nothing() -> None:
    code = "import tensorboard.plugins.base_plugin, sys; before = set(sys.modules)\n"
    code += "import profkit.integrations.tensorboard.tab\n"
    code += "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('profkit')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "rich", "click", "jinja2", "msgspec"} & set(loaded)


@pytest.mark.slow
def test_tensorboard_shows_runs_and_reports_in_a_browser_without_the_internet(logdir: Path, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    screenshots = pytest.importorskip("tests.screenshots")
    executable = screenshots.find_browser()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    write_run(logdir / HOSTILE.replace("/", "-"), replace(FINDING, message=HOSTILE))
    with screenshots.tensorboard_of(logdir) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}#profkit")
        tab = page.frame_locator("iframe")
        tab.get_by_role("button", name="train/1").click(timeout=60_000)
        report = tab.frame_locator("iframe")
        assert report.locator("h1").inner_text(timeout=60_000) == (
            "1 fault costs 40 % (30 to 50) of the step: cat-in-loop"
        )
        assert tab.locator("tbody tr").count() == 3
        assert tab.locator("tbody script").count() == 0
        assert [url for url in asked if not url.startswith((address, "data:", "blob:", "about:"))] == []
        browser.close()
