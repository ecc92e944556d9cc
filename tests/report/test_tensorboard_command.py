"""``profkit tensorboard`` as a real process on a free port, asked over loopback as the page would."""

from __future__ import annotations

import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profkit.cli.tensorboard import command
from profkit.errors import UnreadableInput, UsageError
from profkit.report.tensorboard import PREPARED_FOLDER
from tests.report.gpu_trace import OVERVIEW_US, gpu_trace

PROGRAM = "from profkit.cli.tensorboard import command; command()"
DEADLINE_S = 120


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
                self.lines.put(line)
        self.lines.put("")

    def _announced(self) -> str:
        while line := self.lines.get(timeout=DEADLINE_S):
            if found := re.match(r"profkit: (http://127\.0\.0\.1:\d+)/#pytorch_profiler ", line):
                return found.group(1)
        raise AssertionError("the server ended before it served")

    def fetch(self, path: str) -> tuple[bytes, dict[str, str]]:
        with urllib.request.urlopen(f"{self.address}/{path}", timeout=DEADLINE_S) as answer:
            return answer.read(), dict(answer.headers)

    def plugin(self, path: str) -> Any:
        return json.loads(self.fetch(f"data/plugin/pytorch_profiler/{path}")[0])

    def wait_until_loaded(self) -> list[str]:
        """The runs, once none is loading any more; between two questions the process is watched, and must live."""
        end = time.monotonic() + DEADLINE_S
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
    running = Server(logdir)
    yield running
    running.process.send_signal(signal.SIGTERM)
    status = running.process.wait(DEADLINE_S)
    running.reader.join(DEADLINE_S)
    assert status == 0


@pytest.mark.slow
def test_the_tab_s_data_routes_answer_with_the_figures_counted_by_hand(server: Server) -> None:
    assert server.wait_until_loaded() == ["one/two"]
    assert server.plugin("views?run=one/two") == ["Overview", "Operator", "Kernel", "Trace", "Distributed"]
    overview = server.plugin("overview?run=one/two&worker=host_1&span=1")
    (step,) = overview["performance"]
    assert {part["name"]: part["value"] for part in [step, *step["children"]]} == OVERVIEW_US
    assert {item["title"]: item["value"] for item in overview["environments"]}["Device Type"] == "GPU"
    kernels = server.plugin("kernel?run=one/two&worker=host_1&span=1")["total"]["rows"]
    assert kernels == [["gemm", 800], ["ncclDevKernel_AllReduce", 200], ["fused", 100]]


@pytest.mark.slow
def test_the_tab_s_page_needs_nothing_from_the_internet(server: Server) -> None:
    page, headers = server.fetch("data/plugin/pytorch_profiler/index.html")
    assert b'<script src="charts.js"></script>' in page
    assert b"gstatic" not in page
    assert headers["Content-Security-Policy"] == "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
    script, _ = server.fetch("data/plugin/pytorch_profiler/charts.js")
    assert b"window.google" in script
    assert b"//" not in script.replace(b"// ", b"")
    _, headers = server.fetch("")
    assert "script-src 'self' 'unsafe-eval'" in headers["Content-Security-Policy"]


@pytest.mark.slow
def test_the_trace_view_says_so_where_its_script_cannot_be_had(server: Server) -> None:
    page, _ = server.fetch("data/plugin/pytorch_profiler/trace_embedding.html")
    assert re.findall(rb'(?:src|href)="(https?://[^"]*)" onerror="[^"]*chrome://tracing', page) == [
        b"https://cdnjs.cloudflare.com/ajax/libs/webcomponentsjs/0.7.24/webcomponents.min.js"
    ]


@pytest.mark.slow
def test_every_chart_of_the_plugin_s_page_has_a_stand_in(server: Server) -> None:
    page, _ = server.fetch("data/plugin/pytorch_profiler/index.html")
    script, _ = server.fetch("data/plugin/pytorch_profiler/charts.js")
    used = set(re.findall(rb"google\.visualization\.(\w+)", page))
    assert used
    assert {name for name in used if name not in script} == set()


@pytest.mark.slow
def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    write_trace(tmp_path / "one")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        program = (
            f"from profkit.errors import UsageError\ntry:\n    {PROGRAM}\nexcept UsageError as error:\n    print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, tmp_path, "--port", port],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
    assert done.stdout == f"--port {port}: address already in use; --port 0 takes a free one\n"


def test_prepare_only_names_the_directories_and_what_is_left_out(tmp_path: Path) -> None:
    write_trace(tmp_path / "one")
    (tmp_path / "one" / "bad.pt.trace.json").write_text("junk")
    result = CliRunner().invoke(command, [str(tmp_path), "--prepare-only"])
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / PREPARED_FOLDER / 'one'}\n"
    assert result.stderr.startswith(f"profkit: left out: {tmp_path / 'one' / 'bad.pt.trace.json'}: is not a whole")


def test_copies_can_go_elsewhere(tmp_path: Path) -> None:
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


def test_the_help_says_what_needs_the_internet() -> None:
    text = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    assert "Trace view, which loads a script from cdnjs.cloudflare.com" in text
