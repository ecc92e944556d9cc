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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess, SpawnProcess
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, NoReturn

ROOT = Path(__file__).parents[1]
LONGEST_S = 300
"""After this time whatever a test waits for has hung. It is no promise: beside a dozen busy processes everything takes
ten times as long."""

_IMPORTED = ("torch._dynamo", "profkit.cli.record", "profkit.collect.launch.scenario", "profkit.collect.launch.script")
"""PyTorch with its compiler's front end, and what records: of a small recording, importing that is a tenth."""


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
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    know_that_objects_are_frozen()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(*request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)  # nothing is left to be taken down, which takes PyTorch a second


def know_that_objects_are_frozen(known: bool = True) -> None:
    """To count what was imported, as each recording does twice to know it, takes a seventh of a small one."""
    from profkit.collect.machine import environment

    setattr(environment, "gc", SimpleNamespace(get_freeze_count=lambda: 1) if known else gc)  # noqa: B010


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


class ForkedProgram(subprocess.Popen[str]):
    """``python -m MODULE ARGUMENTS``, or ``python SCRIPT ARGUMENTS``, that goes on in the fork instead of running a new
    interpreter."""

    def __init__(self, args: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        go_on = functools.partial(_go_on, args, env)
        super().__init__(args, preexec_fn=go_on, restore_signals=False, **options)  # Python ignores those


def _go_on(command: Sequence[str], environment: Mapping[str, str] | None) -> NoReturn:
    """What a new interpreter would find: no files but its own, one of which `subprocess.Popen` waits for until it is
    closed, no handlers of signals, and the collector of garbage at work."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    gc.enable()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    run_command(command[1:])


def run_command(arguments: Sequence[str] | None = None) -> NoReturn:
    """``python ARGUMENTS``; those of this process's own command line if none are given."""
    option, *rest = sys.argv[1:] if arguments is None else arguments
    if option == "-u":
        option, *rest = rest
    if option != "-m":
        _call(f"{__name__}:run_script", [option, *rest])
    module, *rest = rest
    sys.path[0] = os.getcwd()  # as ``python -m`` has it
    _call(f"{'profkit.cli' if module == 'profkit' else module}:main", rest)


def run_script() -> None:
    """``python SCRIPT``, without profkit."""
    script = sys.argv.pop(1)
    runpy.run_path(script, run_name="__main__")


def launch() -> None:
    """``python ARGUMENTS`` for a program of several processes, which are forks, too: torchrun, profkit and
    multiprocessing start them."""
    from torch import distributed
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    from profkit.collect.launch import parent

    setattr(parent, "subprocess", SimpleNamespace(Popen=ForkedProgram))  # noqa: B010  # for this process
    setattr(subprocess_handler, "Popen", ForkedProgram)  # noqa: B010
    setattr(SpawnProcess, "_Popen", staticmethod(ForkProcess._Popen))  # noqa: B010
    distributed.destroy_process_group = _after_its_threads(distributed.destroy_process_group)
    run_command()


def _after_its_threads(destroy: Callable[..., None]) -> Callable[..., None]:
    """A thread of gloo needs the GIL to let go of its last collective. A program that has everything imported ends
    before: then the group, which DistributedDataParallel frees with the GIL held, waits for that thread forever."""

    @functools.wraps(destroy)
    def wait_and_destroy(*arguments: Any) -> None:
        time.sleep(0.05)
        destroy(*arguments)

    return wait_and_destroy


if __name__ == "__main__":
    serve()
