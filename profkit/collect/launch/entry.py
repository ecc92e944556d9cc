"""``python -m profkit.collect.launch.entry OPTIONS -- ARGS`` runs a user's program and records it: see
`profkit.collect.launch.script`, which is imported here only.

Python has put the working directory in front of its path. A file there that is named like a module of the standard
library would be taken for it by profkit, also where the program lies elsewhere and never sees that file.
"""

import sys


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):  # else Python has put nothing there
        sys.path[0] = __file__  # holds no module; the program's own folder takes this place
    from profkit.collect.launch.script import main as run

    run()


if __name__ == "__main__":
    main()
