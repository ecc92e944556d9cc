"""``python -m profkit`` is the same as ``profkit``."""

from profkit.cli import main

main()
