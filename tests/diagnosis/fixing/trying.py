"""What runs in a forked process: larger batches are tried, or the command line, with programs that are forks too."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import msgspec

from profkit.cli._copies import try_larger_batches
from profkit.diagnosis.fixing import turns
from tests.end_to_end import recording
from tests.forks import ForkedProgram


def main() -> None:
    """The script and its arguments are the command line; nothing but the trials is printed, as JSON."""
    _fork_programs()
    script, *arguments = sys.argv[1:]
    print(msgspec.json.encode(try_larger_batches(script, tuple(arguments), False, ())).decode())


def command() -> None:
    """profkit's command line."""
    _fork_programs()
    recording.main()


def _fork_programs() -> None:
    forked = SimpleNamespace(Popen=ForkedProgram, TimeoutExpired=subprocess.TimeoutExpired)
    setattr(turns, "subprocess", forked)  # noqa: B010  # for this process
