"""Processes that begin with PyTorch imported, its compiler's front end included: that takes longer than most scenarios.

One process imports, runs nothing, and forks for each request; what it forks is as good as new. Programs of users are
tested in processes of their own all the same.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """How a forked process ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The parent's side."""

    def __enter__(self) -> Forks:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

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
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(*request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(function: str, arguments: list[str], directory: str, out: str, err: str) -> None:
    os.chdir(directory)
    for path, descriptor in ((os.devnull, 0), (out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    sys.argv = [function, *arguments]
    module, _, name = function.partition(":")
    status = 0
    try:
        getattr(importlib.import_module(module), name)()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
