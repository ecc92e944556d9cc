"""TensorBoard with the "PyTorch Profiler" tab alone, on this machine alone, without anything from the internet.

The plugin's page loads Google Charts and, for its Trace view, a polyfill of HTML imports. Without the first it waits
for ever; so ``charts.js`` is served in its place. The second has no stand-in: the view says so when it cannot load.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import werkzeug
from tensorboard import program
from tensorboard.plugins.core.core_plugin import CorePluginLoader
from torch_tb_profiler.plugin import TorchProfilerPlugin
from werkzeug import wrappers

from profkit.errors import UsageError

ADDRESS = "127.0.0.1"
_GOOGLE_CHARTS = b'<script src="https://www.gstatic.com/charts/loader.js">'
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
_POLYFILL = b'webcomponents.min.js"'
_NO_POLYFILL = (
    b'webcomponents.min.js" onerror="document.documentElement.textContent=\'This view needs a script from the internet '
    b"(webcomponents.js). Without it, open the trace file itself in chrome://tracing or at https://ui.perfetto.dev.'\""
)


class LocalTab(TorchProfilerPlugin):  # type: ignore[misc] # the plugin publishes no types
    """The installed plugin with two of its files changed as they are served, and with its loading bounded.

    It starts one process per trace, all runs at once; here as many runs load together as there are processors.
    """

    def __init__(self, context: Any) -> None:
        self._loading = threading.BoundedSemaphore(os.cpu_count() or 1)
        super().__init__(context)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        return {**super().get_plugin_apps(), "/charts.js": self.static_file_route}

    @wrappers.Request.application  # type: ignore[arg-type] # it is typed for functions and takes methods as well
    def static_file_route(self, request: werkzeug.Request) -> werkzeug.Response:
        name = request.path.rpartition("/")[2]
        if name == "charts.js":
            script = Path(__file__).with_name("charts.js").read_bytes()
            return werkzeug.Response(script, content_type="application/javascript", headers=self.headers)
        response: werkzeug.Response = werkzeug.Response.from_app(super().static_file_route, request.environ)
        page = response.get_data()
        if name == "index.html":
            response.set_data(page.replace(_GOOGLE_CHARTS, b'<script src="charts.js">'))
            response.headers["Content-Security-Policy"] = _POLICY
        elif name == "trace_embedding.html":
            response.set_data(page.replace(_POLYFILL, _NO_POLYFILL))
        return response

    def _load_run(self, run_dir: str) -> None:
        with self._loading:
            super()._load_run(run_dir)


def serve(prepared: Path, port: int, announce: Callable[[str], None], tabs: Sequence[Any] = ()) -> None:
    """Serve the prepared directory on ``127.0.0.1`` until interrupted; ``announce`` gets the address of the tab.
    ``tabs`` are more of TensorBoard's plugin loaders.

    Port 0 takes a free one. Raises `UsageError` where the port is taken.
    """
    _check_port(port)
    # TensorBoard warns of every page of the plugin that it has no policy, and of each route that this server lacks.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    server = program.TensorBoard(plugins=[CorePluginLoader(), LocalTab, *tabs])
    # Its data server would read event files, of which there are none here.
    server.configure(("", "--logdir", str(prepared), "--host", ADDRESS, "--port", str(port), "--load_fast", "false"))
    try:
        address = server.launch()
    except program.TensorBoardServerException as error:
        raise UsageError(f"--port {port}: {error.msg}") from error
    # An exit through Python ends the plugin's helper processes; the signal alone would leave them behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    announce(f"{address.rstrip('/')}/#{LocalTab.plugin_name}")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return


def _check_port(port: int) -> None:
    """Before TensorBoard starts: by the time it notices a port that is taken, the plugin has processes at work."""
    try:
        socket.create_server((ADDRESS, port)).close()
    except OSError as error:
        cause = os.strerror(error.errno or 0).lower()
        raise UsageError(f"--port {port}: {cause}; --port 0 takes a free one") from error
