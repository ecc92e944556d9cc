"""The parent's side of a plan: the planning process imports PyTorch and runs the user's factory."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import msgspec

from profkit.memory_planner.plan import PlanAnswer, PlanRequest

COMMAND = (sys.executable, "-m", "profkit.memory_planner.process")
_MOST_BYTES = 4 << 20
"""An answer takes some kilobytes. A program that got hold of the pipe could send without end."""
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TORCHDYNAMO_DISABLE": "1"}
"""A plan takes nothing from a GPU and is the same without one. Fusions of compiled code are not planned."""


def make_plan(request: PlanRequest) -> PlanAnswer:
    """Ask the planning process. All output of the user's code goes to stderr."""
    process = subprocess.Popen(  # noqa: S603  # profkit itself
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            with suppress(BrokenPipeError):  # it has ended already; its status says how
                process.stdin.write(msgspec.json.encode(request))
                process.stdin.close()
            answered = process.stdout.read(_MOST_BYTES)
        except BaseException:
            process.kill()
            raise
        if len(answered) == _MOST_BYTES:
            process.kill()
    return _answer_in(answered, process.returncode)


def _answer_in(answered: bytes, status: int) -> PlanAnswer:
    try:
        return msgspec.json.decode(answered, type=PlanAnswer)
    except msgspec.DecodeError:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return PlanAnswer(traceback=f"the planning process ended with {how} and without an answer")
