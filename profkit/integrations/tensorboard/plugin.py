"""The tab's routes: its script, the list of runs, the report of one, and the comparison of two.

The client names runs by their ids, which are looked up among those found below the log directory. No path comes from
outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from importlib.resources import files
from typing import Any

import werkzeug
from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin
from werkzeug import wrappers

from profkit.core.errors import ProfkitError
from profkit.core.failures import describe_failure
from profkit.integrations.tensorboard.runs import NAME, Runs, row_of
from profkit.report.json import load_run_json
from profkit.report.tensorboard.hosts import Hosts, answer_only

_UNKNOWN = "There is no such run."
Answer = Callable[["Plugin", werkzeug.Request], werkzeug.Response]


def _route(answer: Answer) -> Callable[..., Any]:
    """Serve an answer, or one line if it fails."""

    @wraps(answer)
    def answer_or_tell(plugin: Plugin, request: werkzeug.Request) -> werkzeug.Response:
        try:
            return answer(plugin, request)
        except ProfkitError as error:
            return _answer(str(error), "text/plain", 500)
        except Exception as error:  # TensorBoard would print a traceback and close the connection
            return _answer(f"This page {describe_failure(error)}.", "text/plain", 500)

    served: Callable[..., Any] = wrappers.Request.application(answer_or_tell)  # type: ignore[arg-type] # takes methods too
    return served


class Plugin(TBPlugin):  # type: ignore[misc] # TensorBoard publishes no types
    """The tab for the runs in ``folders``, as TensorBoard was given them. It answers requests to these ``hosts``."""

    plugin_name = NAME

    def __init__(self, folders: str, hosts: Hosts = Hosts()) -> None:  # noqa: B008  # a frozen value
        self._found = Runs(folders)
        self._hosts = hosts

    def is_active(self) -> bool:
        """Whether there is a run to show."""
        return bool(self._found.find())

    def frontend_metadata(self) -> Any:
        return FrontendMetadata(es_module_path="/index.js", tab_name=NAME, disable_reload=False)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        routes = {
            "/index.js": self._script,
            "/runs": self._runs,
            "/report": self._report,
            "/compare": self._compare,
        }
        return {route: answer_only(self._hosts, answer) for route, answer in routes.items()}

    @_route
    def _script(self, request: werkzeug.Request) -> werkzeug.Response:  # noqa: ARG002
        text = files(__package__).joinpath("index.js").read_text(encoding="utf-8")
        return _answer(text, "application/javascript")

    @_route
    def _runs(self, request: werkzeug.Request) -> werkzeug.Response:  # noqa: ARG002
        rows = [row_of(name, folder) for name, folder in self._found.find().items()]
        latest_first = sorted(rows, key=lambda row: row.started, reverse=True)
        return _answer(json.dumps(list(map(asdict, latest_first))), "application/json")

    @_route
    def _report(self, request: werkzeug.Request) -> werkzeug.Response:
        from profkit.report.html.page import policy, render_html

        folder = self._found.find().get(request.args.get("run", ""))
        if folder is None:
            return _answer(_UNKNOWN, "text/plain", 404)
        return _answer(render_html(load_run_json(folder)), "text/html", policy=policy())

    @_route
    def _compare(self, request: werkzeug.Request) -> werkzeug.Response:
        from profkit.diagnosis.compare import compare_paths
        from profkit.report.html.comparison import policy, render_html

        runs = self._found.find()
        before, after = (runs.get(request.args.get(side, "")) for side in ("before", "after"))
        if before is None or after is None:
            return _answer(_UNKNOWN, "text/plain", 404)
        return _answer(render_html(compare_paths(before, after)), "text/html", policy=policy())


def _answer(text: str, kind: str, status: int = 200, policy: str = "default-src 'none'") -> werkzeug.Response:
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy}
    return werkzeug.Response(text, status=status, content_type=f"{kind}; charset=utf-8", headers=headers)
