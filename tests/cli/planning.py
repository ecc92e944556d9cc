"""The command line in a process that has imported PyTorch and makes plans itself."""

from __future__ import annotations

import sys


def main() -> None:
    from profkit import cli
    from profkit.memory_planner import parent, process

    setattr(parent, "make_plan", process.answer)  # noqa: B010  # for this process
    sys.path[0] = ""  # as ``python -m profkit`` has it
    cli.main()
