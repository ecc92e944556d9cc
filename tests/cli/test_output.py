"""What becomes of a diagnosis: the page in a browser, and what is shared."""

from __future__ import annotations

import json
import shutil
import webbrowser
from pathlib import Path

import pytest
from click.testing import CliRunner

from profkit.cli._output import has_screen
from profkit.cli.diagnose import command
from profkit.core import memory_reuse

RECORDED = Path(__file__).parents[2] / "traces" / "recorded" / "nvidia-h100-80gb-hbm3" / "gelu-by-hand" / "pitfall"


@pytest.mark.parametrize(
    ("environment", "system", "has"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({}, "win32", True),
        ({"CI": "true", "DISPLAY": ":99"}, "linux", False),
        ({"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "darwin", False),
    ],
)
def test_a_page_is_opened_only_where_there_is_a_display(environment: dict[str, str], system: str, has: bool) -> None:
    assert has_screen(environment, system) is has


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that is read in this process, which keeps its garbage collector and memory settings."""
    for name in ("stop_collecting_garbage", "reuse_memory_for_columns", "reuse_memory_for_rules"):
        monkeypatch.setattr(memory_reuse, name, lambda: None)
    shutil.copytree(RECORDED, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(("display", "opens"), [(":0", True), ("", False)])
def test_open_shows_the_page_or_says_where_it_is(
    recording: Path, monkeypatch: pytest.MonkeyPatch, display: str, opens: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setattr("sys.platform", "linux")
    environment = {"DISPLAY": display, "WAYLAND_DISPLAY": "", "CI": "", "SSH_CONNECTION": ""}
    shown = CliRunner().invoke(command, [str(recording), "--open"], env=environment, catch_exceptions=False)
    page = recording / "report.html"
    assert opened == [page.as_uri()] * opens
    assert (f"No browser was opened; the page is {page}" in shown.output) is not opens


def test_a_shared_report_names_no_folders_and_diagnosis_json_stays_complete(recording: Path) -> None:
    CliRunner().invoke(command, [str(recording)], catch_exceptions=False)
    assert "/home/user/" in (recording / "report.html").read_text()
    shown = CliRunner().invoke(command, [str(recording), "--share", "--format", "json"], catch_exceptions=False)
    file = json.loads(shown.stdout)["findings"][0]["location"]["file"]
    assert file == "profkit/_scenarios/gelu_by_hand.py"
    assert "/home/user" not in (recording / "report.html").read_text() + shown.stdout
    assert str(recording) not in (recording / "report.html").read_text() + shown.stdout
    assert "/home/user/" in (recording / "diagnosis.json").read_text()


def test_no_source_leaves_out_the_lines_of_the_program(recording: Path) -> None:
    CliRunner().invoke(command, [str(recording), "--no-source"], catch_exceptions=False)
    page = (recording / "report.html").read_text()
    assert json.loads((recording / "diagnosis.json").read_text())["findings"][0]["location"]["source"]
    assert "gelu_by_hand.py:" in page
    assert "# expect" not in page


def test_a_report_is_made_in_a_working_directory_that_no_longer_exists(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for option in ("--no-source", "--share"):
        shown = CliRunner().invoke(command, [str(recording), option], catch_exceptions=False)
        assert (shown.exit_code, (recording / "report.html").is_file()) == (0, True)
        (recording / "report.html").unlink()
