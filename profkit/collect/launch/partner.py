"""The second process of a scenario that runs in two: the same variant as rank 1, unrecorded."""

from __future__ import annotations

import sys
from pathlib import Path

from profkit.collect.launch.scenario import join, load_scenario, seed


def main() -> None:
    path, variant, device, meeting = sys.argv[1:5]
    module = load_scenario(Path(path), variant)
    seed()
    state = module.setup(device)
    join(1, meeting)
    for _ in getattr(module, variant)(state):
        pass


if __name__ == "__main__":
    main()
