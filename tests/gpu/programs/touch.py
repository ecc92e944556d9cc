"""Begins with the device, to see that this process can."""

from __future__ import annotations

import sys

from tests.gpu.children import first_touch

if __name__ == "__main__":
    sys.stdin.readline()
    first_touch(sys.argv[1])
