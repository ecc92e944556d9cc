"""Processes that begin with PyTorch imported, its compiler's front end included: that takes longer than most scenarios.

One process imports, runs nothing, and forks for each request; what it forks is as good as new, but that the collector
of garbage passes over what was imported: it would copy all of that, which takes as long as most of what is recorded.
That programs of users get a process of their own, and import PyTorch there, is tested without it.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """How a forked process ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The parent's side. The process starts when it is first asked for something."""

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "_process" in vars(self):
            # Not by the end of its input: a process that some test left behind may hold that open.
            self._process.kill()
            self._process.communicate()

    @functools.cached_property
    def _process(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, function: str, arguments: Sequence[str], directory: Path) -> Ended:
        """Call ``module:function`` without arguments, with ``arguments`` as the command line, in ``directory``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = directory / ".stdout", directory / ".stderr"
        request = [function, list(arguments), str(directory), str(out), str(err)]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = json.loads(self._process.stdout.readline())
        texts = [path.read_text(encoding="utf-8") for path in (out, err)]
        out.unlink()
        err.unlink()
        return Ended(status, *texts)


def serve() -> None:
    """The child's side: fork for each request and answer with the exit status."""
    importlib.import_module("torch._dynamo")
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(*request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # nothing is left to be taken down, which takes PyTorch a second


def _become(function: str, arguments: list[str], directory: str, out: str, err: str) -> NoReturn:
    os.chdir(directory)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    _call(function, arguments)


def _call(function: str, arguments: Sequence[str]) -> NoReturn:
    """``module:function`` with a command line of its own, and an end as Python would make it."""
    sys.argv = [function, *arguments]
    module, _, name = function.partition(":")
    status = 0
    try:
        getattr(importlib.import_module(module), name)()
    except SystemExit as leaving:
        status = leaving.code & 0xFF if isinstance(leaving.code, int) else int(leaving.code is not None)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class ForkedProgram:
    """In the place of `subprocess.Popen`, for ``python -m MODULE ARGUMENTS``: the module's ``main`` in a fork."""

    def __init__(self, command: Sequence[str], stderr: int | None = None) -> None:
        _, option, module, *arguments = command
        assert option == "-m"
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                signal.signal(number, signal.SIG_DFL)  # as in a program that is started
            sys.path[0] = os.getcwd()  # as ``python -m`` has it
            if stderr == subprocess.DEVNULL:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            _call(f"{module}:main", arguments)

    def __enter__(self) -> ForkedProgram:
        return self

    def __exit__(self, *error: object) -> None:
        """The child has been waited for."""

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def run_script() -> None:
    """``python SCRIPT``, without profkit."""
    script = sys.argv.pop(1)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    serve()
