"""What it takes to be given a tensor by another process is tried on the machine, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Listener
from pathlib import Path

import pytest

from profkit.collect.machine import tensor_passing as handing_over
from profkit.collect.machine.tensor_passing import measure_handing_over

_SHARES = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has memory by descriptor")


@_SHARES
def test_a_tensor_and_a_page_have_a_price() -> None:
    price = measure_handing_over()
    assert price is not None
    assert price.tensor_ns > price.page_ns > 0


@_SHARES
def test_no_thread_no_file_and_no_descriptor_are_left() -> None:
    measure_handing_over()  # what Python itself opens once, as for random numbers, is open from here on
    before = (threading.active_count(), len(list(Path("/proc/self/fd").iterdir())))
    measure_handing_over()
    assert (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) == before


def test_a_system_without_such_sharing_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    assert measure_handing_over() is None


def test_a_connection_that_cannot_be_made_gives_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Listener:
        raise OSError("no sockets here")

    monkeypatch.setattr(handing_over, "Listener", refuse)
    assert measure_handing_over() is None
