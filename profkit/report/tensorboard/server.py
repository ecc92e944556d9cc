"""TensorBoard with the "PyTorch Profiler" tab, scalars and the caller's tabs, for this machine only and without the
internet.

The installed plugin is served with four changes, none of them on disk:

- Its page loads Google Charts and waits for ever without them. ``charts.js`` is served instead.
- Its Trace view needs a viewer that browsers no longer run, and a script from the internet to run it anyway. It shows
  profkit's timeline of the run instead, and says where the trace lies.
- Its overview gives means over the steps. It gives the median step instead, as profkit's reports do.
- It logs hundreds of warnings about single events, and nothing about traces that it cannot show. Here it is the other
  way round.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import werkzeug
from tensorboard import program
from tensorboard.plugins.base_plugin import TBLoader
from tensorboard.plugins.core.core_plugin import CorePluginLoader
from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin
from torch_tb_profiler.plugin import TorchProfilerPlugin
from werkzeug import wrappers

from profkit.core.errors import UsageError
from profkit.core.units import format_count
from profkit.report.tensorboard.hosts import answer_only, hosts_of
from profkit.report.tensorboard.overview import of_median_step
from profkit.run.directory import TRACE_SUFFIXES

ADDRESS = "127.0.0.1"
_GOOGLE_CHARTS = b'<script src="https://www.gstatic.com/charts/loader.js">'
_OWN_FILES = {"charts.js": "charts.js", "trace_embedding.html": "trace_view.html"}
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
_SILENT = "CRITICAL"
"""The plugin's log level. It logs an error for each pair of intersecting ranges on a thread."""

Tell = Callable[[str], None]
ReportOf = Callable[[str], str | None]
"""The address of a run's report, seen from the plugin's pages; None if there is none."""


class LocalTab(TorchProfilerPlugin):  # type: ignore[misc] # the plugin publishes no types
    """The installed plugin over copies of the traces below ``logdir``, changed as the module says.

    It starts a process per trace, for all runs at once; here only as many runs load together as there are processors.
    """

    def __init__(self, context: Any, logdir: Path, tell: Tell, report_of: ReportOf) -> None:
        self._loading = threading.BoundedSemaphore(os.cpu_count() or 1)
        self._recordings, self._tell, self._report_of = logdir, tell, report_of
        self._runs: OrderedDict[str, Any] = OrderedDict()  # for its type; the plugin makes its own
        super().__init__(context)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        return {**super().get_plugin_apps(), "/charts.js": self.static_file_route}

    @wrappers.Request.application  # type: ignore[arg-type] # typed for functions, but it takes methods too
    def static_file_route(self, request: werkzeug.Request) -> werkzeug.Response:
        name = request.path.rpartition("/")[2]
        if name in _OWN_FILES:
            content = Path(__file__).with_name(_OWN_FILES[name]).read_bytes()
            kind = "application/javascript" if name.endswith(".js") else "text/html"
            headers = [*self.headers, ("Content-Security-Policy", _POLICY)]
            return werkzeug.Response(content, content_type=kind, headers=headers)
        response: werkzeug.Response = werkzeug.Response.from_app(super().static_file_route, request.environ)
        if name == "index.html":
            response.set_data(response.get_data().replace(_GOOGLE_CHARTS, b'<script src="charts.js">'))
            response.headers["Content-Security-Policy"] = _POLICY
        return response

    @wrappers.Request.application  # type: ignore[arg-type]
    def overview_route(self, request: werkzeug.Request) -> werkzeug.Response:
        response: werkzeug.Response = werkzeug.Response.from_app(super().overview_route, request.environ)
        if response.status_code == HTTPStatus.OK and isinstance(overview := response.get_json(), dict):
            response.set_data(json.dumps(of_median_step(overview)))
        return response

    @wrappers.Request.application  # type: ignore[arg-type]
    def trace_route(self, request: werkzeug.Request) -> werkzeug.Response:
        """What ``trace_view.html`` shows instead of the whole trace."""
        run, name = request.args.get("run", ""), Path(self._get_profile_for_request(request).trace_file_path).name
        folder = self._recordings / run
        trace = folder / name if folder.is_dir() else self._recordings / name  # a trace in the log directory itself
        shown = {"report": self._report_of(run), "trace": str(trace.resolve())}
        answer: werkzeug.Response = self.respond_as_json(shown)
        return answer

    def _load_run(self, run_dir: str) -> None:
        with self._loading:
            super()._load_run(run_dir)

    def _receive_runs(self) -> None:
        """Report in a line the traces that the plugin fails on, and hide runs that have no others: they would break its
        pages."""
        while True:
            run = self._queue.get()
            shown = [profile for profile in run.profiles.values() if profile.worker != "All"]
            lost = sum(path.name.endswith(TRACE_SUFFIXES) for path in Path(run.run_dir).iterdir()) - len(shown)
            if lost > 0:
                self._tell(f"torch-tb-profiler cannot show {format_count(lost, 'trace')} of {run.name}")
            if shown:
                with self._runs_lock:
                    self._runs = OrderedDict(sorted({**self._runs, run.name: run}.items()))


class _LocalTabLoader(TBLoader):  # type: ignore[misc] # TensorBoard publishes no types
    def __init__(self, logdir: Path, tell: Tell, report_of: ReportOf) -> None:
        self._logdir, self._tell, self._report_of = logdir, tell, report_of

    def load(self, context: Any) -> LocalTab:
        return LocalTab(context, self._logdir, self._tell, self._report_of)


def _start_for_this_machine(app: Any, flags: Any) -> Any:
    """TensorBoard's own server, with all that it serves for this machine's names only."""
    return program.create_port_scanning_werkzeug_server(answer_only(hosts_of(flags), app), flags)


def serve(
    prepared: Path,
    logdir: Path,
    port: int,
    tell: Tell,
    report_of: ReportOf = lambda _: None,
    tabs: Sequence[Any] = (),
) -> None:
    """Serve the prepared copies of ``logdir`` on ``127.0.0.1`` until interrupted. ``tell`` gets the address, and a line
    for each run that the plugin fails on. ``tabs`` are further plugin loaders.

    Port 0 takes a free one. Raises `UsageError` if the port is taken.
    """
    _check_port(port)
    # TensorBoard warns about every page of the plugin without a policy, and about each route that this server lacks.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    logging.getLogger(LocalTab.plugin_name).setLevel(_SILENT)
    os.environ.setdefault("TORCH_PROFILER_LOG_LEVEL", _SILENT)  # for the plugin's processes
    plugins = [CorePluginLoader(), ScalarsPlugin, _LocalTabLoader(logdir, tell, report_of), *tabs]
    server = program.TensorBoard(plugins=plugins, server_class=_start_for_this_machine)
    # Its faster data server is a separate program, for larger event files than a few figures per run.
    server.configure(("", "--logdir", str(prepared), "--host", ADDRESS, "--port", str(port), "--load_fast", "false"))
    try:
        address = server.launch()
    except program.TensorBoardServerException as error:
        raise UsageError(f"--port {port}: {error.msg}") from error
    # Exiting through Python ends the plugin's helper processes; the signal alone would leave them behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    tell(f"{address.rstrip('/')}/#{LocalTab.plugin_name} (Ctrl-C ends it)")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def _check_port(port: int) -> None:
    """Check before TensorBoard starts: when it notices that a port is taken, the plugin's processes are running."""
    try:
        socket.create_server((ADDRESS, port)).close()
    except OSError as error:
        cause = os.strerror(error.errno or 0).lower()
        raise UsageError(f"--port {port}: {cause}; --port 0 takes a free one") from error
