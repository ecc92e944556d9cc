"""Experiments instead of models: what ``profkit diagnose --measure`` runs, in a process of its own.

That process imports PyTorch and may run out of memory or time; the answers that it gave before that count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import msgspec

from profkit.derive.facts import Facts
from profkit.run.experiment import Answer, Experiment, Request

_CHILD = "profkit.collect.experiments.process"
_TIMEOUT_S = 90.0
"""Far more than importing PyTorch and running the experiments takes; a process that hangs is killed then."""
_NO_ANSWER = Answer(failed="the measuring process ended, or took too long, before it came to this")


def measure(facts: Facts, experiments: Sequence[Experiment], timeout_s: float = _TIMEOUT_S) -> list[Answer]:
    """Run the experiments on the machine of the recording, with its number of threads. One answer per experiment."""
    host = facts.run.host
    request = Request(
        device=_device_of(facts),
        processor=host.processor if host else "",
        threads=host.torch_threads if host else 0,
        experiments=tuple(experiments),
    )
    answers = [_answer_in(line) for line in _ask(msgspec.json.encode(request), timeout_s).splitlines()]
    return (answers + [_NO_ANSWER] * len(experiments))[: len(experiments)]


def _device_of(facts: Facts) -> str:
    """``cpu``, or the GPU's name; empty if the trace does not name it."""
    if not facts.device.present:
        return "cpu"
    return next((name for name in facts.trace.recording.devices if name), "")


def _ask(request: bytes, timeout_s: float) -> bytes:
    """What the process answered in time; nothing if the system grants no process."""
    command = [sys.executable, "-m", _CHILD]
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603  # profkit itself
    except OSError:
        return b""
    with process:
        try:
            return process.communicate(request, timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]
        except BaseException:
            process.kill()
            raise


def _answer_in(line: bytes) -> Answer:
    try:
        return msgspec.json.decode(line, type=Answer)
    except msgspec.DecodeError:  # the last line of a process that was killed
        return _NO_ANSWER
