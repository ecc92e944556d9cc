"""Processes that work at request: they import all they need at once, and then wait, so that importing overlaps with
other work, and nothing is done while another part measures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from tests.gpu.nursery import Forked, Nursery
from tests.gpu.rows import PartFailed

_FAILURE = "failure"


class Child:
    """A process that runs a module, a fork of the ``nursery`` if there is one. It ends when the context is left."""

    def __init__(
        self,
        name: str,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        nursery: Nursery | None = None,
    ) -> None:
        self._name = name
        self._process: subprocess.Popen[str] | Forked
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        if nursery is not None:
            self._process = nursery.start(module, arguments, self._errors)
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=dict(os.environ if environment is None else environment),
            start_new_session=True,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._process.communicate()
        self._errors.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def ask(self, request: str, limit_s: float) -> dict[str, Any]:
        """Its answer. Raises `PartFailed` if it fails, or does not answer in time and is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()
        timer = threading.Timer(max(limit_s, 0.0), lambda: (late.set(), self.kill()))
        timer.start()
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            self._process.wait()
            said = f"no answer within {limit_s:.0f} s" if late.is_set() else self._last_error()
            raise PartFailed(f"{self._name}: {said}") from None
        finally:
            timer.cancel()
        if _FAILURE in answer:
            raise PartFailed(f"{self._name}: {answer[_FAILURE]}")
        return answer

    def finish(self, limit_s: float, line: str = "") -> None:
        """Let a process go on that waits for a line and then ends. Raises `PartFailed` as `ask` does."""
        try:
            self._process.communicate(f"{line}\n", timeout=max(limit_s, 0.0))
        except subprocess.TimeoutExpired:
            self.kill()
            raise PartFailed(f"{self._name}: not done within {limit_s:.0f} s") from None
        if self._process.returncode:
            raise PartFailed(f"{self._name}: {self._last_error()}")

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"it said nothing, and ended with {self._process.returncode}"


def answer_requests(answer: Callable[[str], Mapping[str, Any]]) -> None:
    """Answer each line of stdin with a line of JSON, the first error too. What else the process prints goes to
    stderr."""
    answers = _answers()
    for line in sys.stdin:
        try:
            answered = answer(line.strip())
        except Exception as error:
            reason = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
            print(json.dumps({_FAILURE: reason}), file=answers, flush=True)
            raise
        print(json.dumps(answered), file=answers, flush=True)


def _answers() -> TextIO:
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def first_touch(device: str) -> None:
    """Let PyTorch begin with the device, which takes seconds on a GPU."""
    import torch

    (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item()
