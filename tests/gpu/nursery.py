"""Processes that begin with PyTorch imported, by `profkit.collect.launch.nursery`, each like a `subprocess.Popen`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

_SERVER = "profkit.collect.launch.nursery"


class Nursery:
    """Forks processes, all in one ``environment``, until the context is left. One that has begun goes on."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", _SERVER, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=dict(environment),
            )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self._ours.close()
        self._server.kill()
        self._server.wait()

    def start(self, module: str, arguments: Sequence[str], stderr: IO[str] | None = None) -> Forked:
        """A process that runs the module, in a group and with pipes of its own. Raises `OSError` if the server is
        gone."""
        stdin, stdout, errors, told = (os.pipe() for _ in range(4))
        message = json.dumps({"module": module, "arguments": list(arguments)}).encode()
        given = [stdin[0], stdout[1], errors[1] if stderr is None else stderr.fileno(), told[1]]
        theirs, ours = (stdin[0], stdout[1], errors[1], told[1]), (stdin[1], stdout[0], errors[0], told[0])
        try:
            socket.send_fds(self._ours, [message], given)
        except OSError:
            _close(ours)
            raise
        finally:
            _close(theirs)
        return Forked(*map(_opened, (told[0], stdin[1], stdout[0], errors[0]), "rwrr"))


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _opened(descriptor: int, mode: str) -> IO[str]:
    return os.fdopen(descriptor, mode, encoding="utf-8", errors="replace")


class Forked:
    """As a `subprocess.Popen` with text pipes. Its number is known once it has begun."""

    def __init__(self, told: IO[str], stdin: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self.returncode: int | None = None
        self._told, self._pid = told, 0
        self._ended = threading.Event()
        self._known = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self._pid = int(self._told.readline() or 0)
        self._known.set()
        last = self._told.readline()
        self._told.close()
        self.returncode = int(last) if last else -signal.SIGKILL
        self._ended.set()

    @property
    def pid(self) -> int:
        """Waits until it has begun. Raises `ProcessLookupError` if it never does."""
        self._known.wait()
        if not self._pid:
            raise ProcessLookupError("the process did not begin")
        return self._pid

    def kill(self) -> None:
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status. Raises `subprocess.TimeoutExpired`."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, given: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Give it the input, close its stdin, and read the rest until it ends. Raises `subprocess.TimeoutExpired`."""
        with suppress(OSError, ValueError):  # it has ended, or was asked before
            self.stdin.write(given or "")
        with suppress(OSError):
            self.stdin.close()
        said: dict[str, str] = {}
        readers = [
            threading.Thread(target=_read, args=(name, stream, said), daemon=True)
            for name, stream in (("out", self.stdout), ("err", self.stderr))
        ]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return said.get("out", ""), said.get("err", "")


def _read(name: str, stream: IO[str], said: dict[str, str]) -> None:
    with suppress(OSError, ValueError):
        said[name] = stream.read()
        stream.close()
