"""``python -m profkit`` is the same as ``profkit``: no file of the working directory is taken for a module."""

import sys


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):  # else Python has not put the working directory there
        del sys.path[0]
    from profkit.cli import main as run

    run()


main()
