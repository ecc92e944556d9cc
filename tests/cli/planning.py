"""The command line in a process that has imported PyTorch, where plans are made in that process too."""

from __future__ import annotations

import sys


def main() -> None:
    from profkit import cli
    from profkit.collect.planning import parent, process

    setattr(parent, "make_plan", process.answer)  # noqa: B010  # for this process
    sys.path[0] = ""  # as ``python -m profkit`` has it
    cli.main()
