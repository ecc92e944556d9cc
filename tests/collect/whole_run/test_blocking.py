"""What a thread sleeps for, from the kernel's files."""

from __future__ import annotations

import os

import pytest

from profkit.collect.whole_run import blocking
from profkit.collect.whole_run.blocking import Blocking
from profkit.run.whole_run import StackActivity

READ, WAIT4, SLEEP = 0, 61, 230


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(blocking.platform, "machine", lambda: "x86_64")
    (tmp_path / "task" / "7").mkdir(parents=True)
    (tmp_path / "fd").mkdir()
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text("head\n0: a b 01 0:0 0:0 0 1000 0 4711 1 x\n")
    targets = ("pipe:[3]", "socket:[4711]", "socket:[9]", "/dev/pts/3", "/data/rows.bin")
    for number, target in enumerate(targets):
        os.symlink(target, tmp_path / "fd" / str(number))
    return tmp_path


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (f"{READ} 0x0 0x1", StackActivity.ASKING),
        (f"{READ} 0x1 0x1", StackActivity.NETWORK),
        (f"{READ} 0x2 0x1", None),
        (f"{READ} 0x3 0x1", StackActivity.ASKING),
        (f"{READ} 0x4 0x1", None),
        (f"{READ} 0x9 0x1", None),
        (f"{WAIT4} 0x1 0x1", StackActivity.CHILD),
        (f"{SLEEP} 0x0 0x1", None),
        ("running", None),
        ("", None),
    ],
)
def test_each_system_call_tells_its_purpose(root, call, expected):
    (root / "task" / "7" / "syscall").write_text(call)
    blocked = Blocking(7, root)
    assert blocked.read() is expected
    assert blocked.read() is expected


def test_where_the_kernel_does_not_say_nothing_is_known(root):
    assert Blocking(7, root).read() is None


def test_on_another_processor_nothing_is_known(root, monkeypatch):
    monkeypatch.setattr(blocking.platform, "machine", lambda: "s390x")
    (root / "task" / "7" / "syscall").write_text(f"{READ} 0x0 0x1")
    assert Blocking(7, root).read() is None
