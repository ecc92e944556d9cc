"""The tests' names depend on nothing but the code: workers that disagree on them run no test at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_second_collection_finds_the_same_names(request):
    """Later, and with another order of sets: a time or a set in a parameter would give the test another name."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", str(ROOT / "tests")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "17"}, check=False
    )
    assert done.returncode == 0, done.stdout[-2_000:]
    second = set(done.stdout.splitlines())
    assert [item.nodeid for item in request.session.items if item.nodeid not in second] == []
