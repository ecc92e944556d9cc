"""The tab's routes: its script, the list of runs, the report of one, and the comparison of two.

Runs are named by the client and looked up in what was found below the log directory: no path comes from outside.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import werkzeug
from tensorboard.plugins.base_plugin import FrontendMetadata, TBPlugin
from werkzeug import wrappers

from profkit.errors import ProfkitError
from profkit.integrations.tensorboard.runs import find_runs, read_diagnosis, row_of
from profkit.integrations.tensorboard.tab import NAME


class Plugin(TBPlugin):  # type: ignore[misc] # TensorBoard publishes no types
    """The tab over the runs in ``folders``, as TensorBoard was given them."""

    plugin_name = NAME

    def __init__(self, folders: str) -> None:
        self._folders = folders

    def is_active(self) -> bool:
        """Whether there is a run to show."""
        return bool(find_runs(self._folders))

    def frontend_metadata(self) -> Any:
        return FrontendMetadata(es_module_path="/index.js", tab_name=NAME, disable_reload=False)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        return {
            "/index.js": self._script,
            "/runs": self._runs,
            "/report": self._report,
            "/compare": self._compare,
        }

    @wrappers.Request.application  # type: ignore[arg-type] # it is typed for functions and takes methods as well
    def _script(self, request: werkzeug.Request) -> werkzeug.Response:  # noqa: ARG002
        text = files(__package__).joinpath("index.js").read_text(encoding="utf-8")
        return _answer(text, "application/javascript")

    @wrappers.Request.application  # type: ignore[arg-type]
    def _runs(self, request: werkzeug.Request) -> werkzeug.Response:  # noqa: ARG002
        rows = [asdict(row_of(name, folder)) for name, folder in find_runs(self._folders).items()]
        return _answer(json.dumps(rows), "application/json")

    @wrappers.Request.application  # type: ignore[arg-type]
    def _report(self, request: werkzeug.Request) -> werkzeug.Response:
        from profkit.report.html.page import policy, render_html

        folder = find_runs(self._folders).get(request.args.get("run", ""))
        if folder is None:
            return _answer("There is no such run.", "text/plain", 404)
        try:
            page = render_html(read_diagnosis(folder))
        except ProfkitError as error:
            return _answer(str(error), "text/plain", 500)
        return _answer(page, "text/html", policy=policy())

    @wrappers.Request.application  # type: ignore[arg-type]
    def _compare(self, request: werkzeug.Request) -> werkzeug.Response:
        from profkit.comparing import compare_paths
        from profkit.report.html.comparison import policy, render_html

        runs = find_runs(self._folders)
        before, after = (runs.get(request.args.get(side, "")) for side in ("before", "after"))
        if before is None or after is None:
            return _answer("There is no such run.", "text/plain", 404)
        try:
            page = render_html(compare_paths(before, after))
        except ProfkitError as error:
            return _answer(str(error), "text/plain", 500)
        return _answer(page, "text/html", policy=policy())


def _answer(text: str, kind: str, status: int = 200, policy: str = "default-src 'none'") -> werkzeug.Response:
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy}
    return werkzeug.Response(text, status=status, content_type=f"{kind}; charset=utf-8", headers=headers)
