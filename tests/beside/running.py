"""One run of a program in one mode, and all that is compared of it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.beside.declared import AS_MODULES, Program
from tests.beside.modes import BARE, command
from tests.beside.staging import staged

_CHECKOUT = Path(__file__).parents[2]
_ENVIRONMENT = {
    "COLUMNS": "80",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}
_OURS = ("PROFKIT_STRICT", "PROFKIT_CACHE", "XDG_CACHE_HOME", "PYTEST_CURRENT_TEST")
"""What the runner of the tests sets, and a user does not."""
_REDIRECTED = {"no-stdin": "<&-", "no-stdout": ">&-", "no-stderr": "2>&-"}
LINGER_S = 3.0
"""How long processes of a run may outlive it before they count as left behind."""


@dataclass(frozen=True)
class Outcome:
    """What a run left: its status as `subprocess` has it, None for a run that was killed at its limit."""

    status: int | None
    stdout: str
    stderr: str
    files: Mapping[str, str] = field(default_factory=dict)
    """What lies in the working directory, at home and among the temporary files: path to content."""
    processes: tuple[str, ...] = ()
    """The commands of processes that it left behind."""
    recorded_status: int | None = None
    """What profkit noted in run.json."""
    seconds: float = 0.0
    cpu_s: float = 0.0


def outcome(program: Program, mode: str, at: Path, limit_s: float, linger_s: float = LINGER_S) -> Outcome:
    """Run the program afresh. Raises `PermissionError` if this user may not make what it needs."""
    with staged(program, at) as ready:
        line = command(mode, ready)
        given = ready.target if mode == BARE and program.start == "text" else program.stdin
        (at / "stdin").write_text(given, encoding="utf-8")
        began = time.perf_counter()
        with (at / "stdin").open("rb") as stdin, (at / "out").open("wb") as out, (at / "err").open("wb") as err:
            if program.start == "broken-pipe":
                reading, writing = os.pipe()
                os.close(reading)
            process = subprocess.Popen(
                _as_started(program, line, at),
                cwd=at / "work",
                env=_environment(program, at),
                stdin=stdin,
                stdout=writing if program.start == "broken-pipe" else out,
                stderr=err,
                start_new_session=True,
            )
            if program.start == "broken-pipe":
                os.close(writing)
            status, cpu_s = _wait(process, began + limit_s)
        seconds = time.perf_counter() - began
        left = _left_behind(process.pid, 0 if status is None else linger_s)
        files = {name: content for part in ("work", "home", "temporary") for name, content in _files(at / part)}
        texts = [(at / name).read_bytes().decode("utf-8", "backslashreplace") for name in ("out", "err")]
        return Outcome(status, *texts, files, left, _recorded_status(ready.run), seconds, cpu_s)


def _as_started(program: Program, line: list[str], at: Path) -> list[str]:
    text = shlex.join(line)
    if program.start in _REDIRECTED:
        return ["sh", "-c", f"exec {text} {_REDIRECTED[program.start]}"]
    if program.start == "deleted":
        gone = shlex.quote(str(at / "gone"))
        return ["sh", "-c", f"mkdir {gone}; cd {gone}; rmdir {gone}; exec {text}"]
    return line


def _environment(program: Program, at: Path) -> dict[str, str]:
    paths = [str(_CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    if program.start in (*AS_MODULES, "code", "text"):
        paths.insert(0, str(at / "code" / "archive.zip") if program.start == "zipped" else str(at / "code"))
    places = {
        "HOME": str(at / "home"),
        "TMPDIR": str(at / "temporary"),
        "PYTHONPATH": os.pathsep.join(paths),
        "TORCHINDUCTOR_CACHE_DIR": str(at / "compiled"),
    }
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    environment |= _ENVIRONMENT | places | program.environment
    if program.start == "no-home":
        del environment["HOME"]
    return environment


def _wait(process: subprocess.Popen[bytes], until: float) -> tuple[int | None, float]:
    """The status and the processor time; None for a process that is late, which is killed with all that it started."""
    is_late = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return (None if is_late else process.returncode), usage.ru_utime + usage.ru_stime
        if time.perf_counter() > until and not is_late:
            is_late = True
            for other in _of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
        time.sleep(0.01)


def _of_session(session: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            rest = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(rest[3]) == session and rest[0] != "Z":
                found.append(int(path.parent.name))
    return found


def _left_behind(session: int, patience_s: float) -> tuple[str, ...]:
    """The commands of what still runs; it is killed."""
    until = time.perf_counter() + patience_s
    while (running := _of_session(session)) and time.perf_counter() < until:
        time.sleep(0.02)
    commands = []
    for pid in running:
        with suppress(OSError):
            commands.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")[:200])
            os.kill(pid, signal.SIGKILL)
    return tuple(sorted(commands))


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        name = f"{folder.name}/{path.relative_to(folder)}"
        if path.is_symlink():
            yield name, f"link to {path.readlink()}"
        elif path.is_file():
            content = path.read_bytes()
            yield name, f"{len(content)} bytes, {hashlib.sha256(content).hexdigest()[:12]}"
        else:
            yield name, "directory" if path.is_dir() else "something else"


def _recorded_status(run: Path) -> int | None:
    with suppress(OSError, ValueError):
        status = json.loads((run / "run.json").read_text(encoding="utf-8")).get("exit_status")
        return status if isinstance(status, int) else None
    return None


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Busy processes beside, as on a login node."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
