"""What TensorBoard loads of profkit, wherever both are installed.

An import that fails here would end the whole of TensorBoard, so nothing is imported but what it has imported itself;
what fails later costs the tab alone.
"""

from __future__ import annotations

import logging
from typing import Any

from tensorboard.plugins.base_plugin import TBLoader

NAME = "profkit"


class ProfkitTab(TBLoader):  # type: ignore[misc] # TensorBoard publishes no types
    """Makes the tab for the log directory, or for ``folder`` where one is given."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder

    def load(self, context: Any) -> Any:
        """The plugin; None where it cannot be loaded, or TensorBoard was given no folder to look in."""
        try:
            from profkit.integrations.tensorboard.plugin import Plugin
        except Exception as error:  # a package that profkit needs is missing, or broken
            logging.getLogger("tensorboard").error("profkit shows no tab: %s: %s", type(error).__name__, error)
            return None
        folder = self._folder or context.logdir or getattr(context.flags, "logdir_spec", "")
        return Plugin(folder) if folder else None
