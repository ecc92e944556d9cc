"""A user's program as Python itself would run it, with somebody who is told when it has imported PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable

from profkit.collect.launch.import_watch import watch_for_torch
from profkit.collect.launch.main_module import load_module, load_script


def run_unrecorded(target: str, arguments: list[str], begin: Callable[[], None], *, is_module: bool = False) -> None:
    """Run the program, which ends as it ends; ``begin`` is called once it has imported PyTorch."""
    if not getattr(sys.flags, "safe_path", False):  # else Python has put nothing there
        sys.path[0] = __file__  # holds no module; the program's own folder takes this place
    program = load_module(target) if is_module else load_script(target)
    sys.orig_argv[1:] = [*(["-m"] if is_module else []), target, *arguments]
    watch_for_torch(begin)
    program.enter(arguments)
    program.run()
