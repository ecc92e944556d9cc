"""What runs in a process that has already imported PyTorch."""

from __future__ import annotations

import importlib.metadata
import sys


def pytest_main() -> None:
    """``pytest ARGUMENTS`` with the plugin, even if profkit is only on the path and not installed."""
    import pytest

    installed = importlib.metadata.entry_points(group="pytest11", name="profkit")
    by_hand = [] if installed else ["-p", "profkit.integrations.pytest_plugin"]
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--color=no", "--basetemp=basetemp", *by_hand, *sys.argv[1:]]))
