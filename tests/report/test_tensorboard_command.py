"""``profkit tensorboard`` as a real process on a free port, with requests like those of its page."""

from __future__ import annotations

import json
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profkit.cli.tensorboard import command
from profkit.core.errors import UnreadableInput, UsageError
from profkit.diagnosis.pipeline import diagnose_path
from profkit.report.files import write_reports
from profkit.report.tensorboard.copies import PREPARED_FOLDER
from tests.forks import LONGEST_S
from tests.report.gpu_trace import OVERVIEW_US, gpu_trace

RECORDED = Path(__file__).parents[2] / "traces/recorded/nvidia-h100-80gb-hbm3/dataloader-in-main-process/pitfall"
BREAKS = {"cat": "cpu_op", "name": "ProfilerStep#x", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5.0, "args": {}}
"""A step without a number."""
PROGRAM = "from profkit.cli.tensorboard import command; command()"


def write_trace(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "host_1.1234.pt.trace.json").write_text(json.dumps(gpu_trace()))


class Server:
    """A running ``profkit tensorboard`` and the address that it announced."""

    def __init__(self, logdir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(logdir), "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.printed: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.address = self._announced()
        except BaseException:
            self.process.kill()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            for line in stderr:
                self.printed.append(line)
                self.lines.put(line)
        self.lines.put("")

    def _announced(self) -> str:
        while line := self.lines.get(timeout=LONGEST_S):
            if found := re.match(r"profkit: (http://127\.0\.0\.1:\d+)/#pytorch_profiler ", line):
                return found.group(1)
        raise AssertionError("the server ended before it served")

    def fetch(self, path: str) -> tuple[bytes, dict[str, str]]:
        with urllib.request.urlopen(f"{self.address}/{path}", timeout=LONGEST_S) as answer:
            return answer.read(), dict(answer.headers)

    def plugin(self, path: str) -> Any:
        return json.loads(self.fetch(f"data/plugin/pytorch_profiler/{path}")[0])

    def wait_until_loaded(self) -> list[str]:
        """The runs, once none is loading any more. Meanwhile the process must stay alive."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            answer = self.plugin("runs")
            if answer["runs"] and not answer["loading"]:
                return list(answer["runs"])
            with pytest.raises(subprocess.TimeoutExpired):
                self.process.wait(0.2)
        raise AssertionError("the plugin did not load its runs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    logdir = tmp_path_factory.mktemp("logs")
    write_trace(logdir / "one" / "two")
    shutil.copytree(RECORDED, logdir / "h100")
    write_reports(diagnose_path(logdir / "h100"), logdir / "h100")
    (logdir / "odd").mkdir()
    (logdir / "odd" / "host_1.1.pt.trace.json").write_text(json.dumps({"traceEvents": [{"ph": "X", **BREAKS}]}))
    running = Server(logdir)
    running.wait_until_loaded()
    yield running
    running.process.send_signal(signal.SIGTERM)
    status = running.process.wait(LONGEST_S)
    running.reader.join(LONGEST_S)
    assert status == 0
    printed = [line for line in running.printed if "odd" not in line]
    assert len(printed) == 2, "one line before the server starts, and one with its address"
    assert [line for line in running.printed if "odd" in line] == [
        "profkit: torch-tb-profiler cannot show 1 trace of odd\n"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "data/plugin/pytorch_profiler/runs", "data/plugin/profkit/runs", "data/logdir"])
def test_nothing_is_served_to_a_page_from_elsewhere(server: Server, path: str) -> None:
    asked = urllib.request.Request(f"{server.address}/{path}", headers={"Host": "attacker.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=LONGEST_S)
    with refused.value as answer:
        assert answer.code == 403
        assert b"one" not in answer.read().replace(b"PROFKIT", b"")


@pytest.mark.slow
def test_the_data_routes_of_the_tab_return_figures_counted_by_hand(server: Server) -> None:
    assert server.wait_until_loaded() == ["h100", "one/two"]
    assert server.plugin("views?run=one/two") == ["Overview", "Operator", "Kernel", "Trace", "Distributed"]
    overview = server.plugin("overview?run=one/two&worker=host_1&span=1")
    (step,) = overview["performance"]
    figures = {**OVERVIEW_US, "Median of 2 steps": OVERVIEW_US["Average Step Time"]}
    del figures["Average Step Time"]
    assert {part["name"]: part["value"] for part in [step, *step["children"]]} == figures
    assert {item["title"]: item["value"] for item in overview["environments"]}["Device Type"] == "GPU"
    kernels = server.plugin("kernel?run=one/two&worker=host_1&span=1")["total"]["rows"]
    assert kernels == [["gemm", 800], ["ncclDevKernel_AllReduce", 200], ["fused", 100]]


@pytest.mark.slow
def test_the_page_of_the_tab_needs_no_internet(server: Server) -> None:
    page, headers = server.fetch("data/plugin/pytorch_profiler/index.html")
    assert b'<script src="charts.js"></script>' in page
    assert b"gstatic" not in page
    assert headers["Content-Security-Policy"] == "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
    script, _ = server.fetch("data/plugin/pytorch_profiler/charts.js")
    assert b"window.google" in script
    assert b"//" not in script.replace(b"// ", b"").replace(b"http://www.w3.org/2000/svg", b"")
    _, headers = server.fetch("")
    assert "script-src 'self' 'unsafe-eval'" in headers["Content-Security-Policy"]


@pytest.mark.slow
def test_the_step_time_of_an_h100_recording_is_that_of_the_diagnosis(server: Server) -> None:
    diagnosis = diagnose_path(RECORDED)
    assert diagnosis.timing.step_time_ns is not None
    (worker,) = server.plugin("workers?run=h100&view=Overview")
    (step,) = server.plugin(f"overview?run=h100&worker={worker}&span=1")["performance"]
    assert step["value"] == pytest.approx(diagnosis.timing.step_time_ns / 1000, abs=1)
    assert next(part["value"] for part in step["children"] if part["name"] == "Kernel") > 0
    tags = json.loads(server.fetch("data/plugin/scalars/tags")[0])
    assert {"step_time_ms/recorded", "step_time_ms/without_profiler", "peak_memory_MB/GPU 0"} <= set(tags["h100"])


@pytest.mark.slow
def test_the_trace_view_and_the_memory_curves_need_no_internet(server: Server) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    screenshots = pytest.importorskip("tests.screenshots")
    executable = screenshots.find_browser()
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{server.address}/#pytorch_profiler")
        tab = page.frame_locator("iframe")

        def choose(view: str) -> None:
            tab.locator(".MuiSelect-root").nth(1).click(timeout=1000 * LONGEST_S)
            tab.get_by_role("option", name=view).click()

        choose("Memory")
        curves = tab.locator("svg[aria-label*='Allocated'] polyline")
        curves.first.wait_for(timeout=1000 * LONGEST_S)
        assert curves.count() == 2
        choose("Trace")
        view = tab.frame_locator("iframe")
        assert "vm_" in (view.locator("#told code").text_content(timeout=1000 * LONGEST_S) or "")
        timeline = view.frame_locator("iframe").locator("#timeline")
        timeline.wait_for(timeout=1000 * LONGEST_S)
        assert timeline.get_by_text("device: kernels").count() > 0
        assert [url for url in asked if not url.startswith((server.address, "data:", "blob:", "about:"))] == []
        browser.close()


@pytest.mark.slow
def test_a_run_without_a_report_says_how_to_get_one(server: Server) -> None:
    shown = server.plugin("trace?run=one/two&worker=host_1&span=1")
    assert shown["report"] is None
    assert Path(shown["trace"]).is_file()
    page, _ = server.fetch("data/plugin/pytorch_profiler/trace_embedding.html")
    assert b"profkit diagnose" in page
    assert not re.search(rb'(?:src|href)="https?:', page)


@pytest.mark.slow
def test_every_chart_of_the_plugin_has_a_replacement(server: Server) -> None:
    page, _ = server.fetch("data/plugin/pytorch_profiler/index.html")
    script, _ = server.fetch("data/plugin/pytorch_profiler/charts.js")
    used = set(re.findall(rb"google\.visualization\.(\w+)", page))
    assert used
    assert {name for name in used if name not in script} == set()


@pytest.mark.slow
def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    write_trace(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        program = (
            "from profkit.core.errors import UsageError\n"
            f"try:\n    {PROGRAM}\nexcept UsageError as error:\n    print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path, "--port", port],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=True,
        )
    assert done.stdout == f"--port {port}: address already in use; --port 0 takes a free one\n"


def test_prepare_only_lists_the_directories_and_what_is_left_out(tmp_path: Path) -> None:
    write_trace(tmp_path / "one")
    (tmp_path / "one" / "bad.pt.trace.json").write_text("junk")
    result = CliRunner().invoke(command, [str(tmp_path), "--prepare-only"])
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / PREPARED_FOLDER / 'one'}\n"
    assert result.stderr.startswith(f"profkit: left out: {tmp_path / 'one' / 'bad.pt.trace.json'}: is not a whole")


def test_copies_can_be_written_elsewhere(tmp_path: Path) -> None:
    write_trace(tmp_path / "logs" / "one")
    result = CliRunner().invoke(command, [str(tmp_path / "logs"), "--prepare-only", "--copies", str(tmp_path / "c")])
    assert result.stdout == f"{tmp_path / 'c' / 'one'}\n"
    assert not (tmp_path / "logs" / PREPARED_FOLDER).exists()


def test_without_traces_there_is_nothing_to_serve(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith(f"{tmp_path}: holds no trace that can be shown")
    result = CliRunner().invoke(command, [str(tmp_path / "none")])
    assert isinstance(result.exception, UnreadableInput)
    assert str(result.exception) == f"{tmp_path / 'none'}: no such directory"


def test_the_help_says_that_nothing_needs_the_internet() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "its pages need no internet" in text
