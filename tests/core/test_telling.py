"""Long work tells where it is, and nothing else does."""

from __future__ import annotations

import io
import sys
import threading

from profkit.core.telling import Teller
from tests.forks import LONGEST_S


class Lines(io.StringIO):
    """A stream that tells when it has enough lines."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self.has_enough, self._left = threading.Event(), enough

    def flush(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_enough.set()


def test_the_last_place_is_told_again_and_again(monkeypatch):
    lines = Lines(2)
    monkeypatch.setattr(sys, "stderr", lines)
    teller = Teller("verify", every_s=0.001)
    teller.at("one")
    teller.at("cat-in-loop, 2 of 3")
    with teller:
        assert lines.has_enough.wait(LONGEST_S)
    told = lines.getvalue().splitlines()
    assert len(told) >= 2
    assert all(line.startswith("profkit: verify: cat-in-loop, 2 of 3, ") for line in told)


def test_short_work_says_nothing(monkeypatch):
    lines = Lines(1)
    monkeypatch.setattr(sys, "stderr", lines)
    with Teller("verify"):
        pass
    assert lines.getvalue() == ""


def test_a_stream_that_is_closed_does_no_harm(monkeypatch):
    lines = Lines(1)
    lines.close()
    monkeypatch.setattr(sys, "stderr", lines)
    with Teller("verify", every_s=0.001) as teller:
        teller._thread.join(60)
        assert not teller._thread.is_alive()
