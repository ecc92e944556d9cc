"""The program runs its own tests under pytest-cov."""
# beside: needs pytest_cov
# beside: mask in \d+\.\d+s
import sys

import pytest

TEST = """
import sys
sys.path.insert(0, {path!r})
from _tiny import digest, train

def test_training():
    digest(train(60)[0])
"""
with open("test_it.py", "w") as file:
    file.write(TEST.format(path=sys.path[0]))
options = ["-s", "-q", "-p", "no:cacheprovider", "-p", "no:profkit", "--cov=_tiny", "--cov-report=term-missing"]
status = pytest.main([*options, "test_it.py"])
print(int(status))
