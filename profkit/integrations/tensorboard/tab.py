"""What TensorBoard loads of profkit, wherever both are installed.

A failing import here would end TensorBoard, so this file imports only what TensorBoard has imported itself. A later
failure costs only the tab.
"""

from __future__ import annotations

import logging
from typing import Any

from tensorboard.plugins.base_plugin import TBLoader


class ProfkitTab(TBLoader):  # type: ignore[misc] # TensorBoard publishes no types
    """Makes the tab for ``folder`` or, by default, for the log directory."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder

    def load(self, context: Any) -> Any:
        """The plugin; None if it cannot be loaded, or if TensorBoard has no log directory."""
        try:
            from profkit.integrations.tensorboard.plugin import Plugin
            from profkit.report.tensorboard.hosts import hosts_of
        except Exception as error:  # a package that profkit needs is missing, or broken
            logging.getLogger("tensorboard").error("profkit shows no tab: %s: %s", type(error).__name__, error)
            return None
        folder = self._folder or context.logdir or getattr(context.flags, "logdir_spec", "")
        return Plugin(folder, hosts_of(context.flags)) if folder else None
