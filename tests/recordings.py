"""Runs of programs, kept from one session of tests to the next: recorded once, judged often.

A run is named by all that decides what it leaves: the code of `profkit.collect` and what it imports, the files that
run and where they lie, the packages that are installed, Python, and how many processors may be used. So a
change of a rule or a reader records nothing anew. What a test that failed has looked at is not kept.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from tests.forks import LONGEST_S, ROOT, Ended, Forks

PLACE = "PROFKIT_RECORDINGS"
"""The environment's name for the directory that holds them."""
_BY_DEFAULT = ROOT / ".pytest_cache" / "profkit-recordings"
_GENERATIONS = 3
"""Versions of the collecting code of which runs are kept: those of a branch, its parent, and the one before."""
_PACKAGE = ROOT / "profkit"
Files = Mapping[str, str]
"""Texts by their path."""
NO_FILES: Files = MappingProxyType({})


@dataclass(frozen=True)
class Kept:
    """How a run ended, how long it took, and the directory that it was given and left: for reading only. ``before`` is
    how the commands ended that ran there before the last."""

    directory: Path
    ended: Ended
    seconds: float
    before: tuple[Ended, ...] = ()


@dataclass(frozen=True)
class Recordings:
    """Runs in ``root``, which sessions and their workers share; ``used`` are those that were asked for here.

    Each has a directory of its own that holds ``writes``, texts by their path. ``reads`` are other files that it runs:
    their text, too, names the run. Whoever asks for one that is being made waits for it.
    """

    root: Path
    forks: Forks
    used: list[Kept] = field(default_factory=list)

    def fork(
        self, function: str, arguments: Sequence[str] = (), *, reads: Iterable[Path] = (), writes: Files = NO_FILES
    ) -> Kept:
        """``module:function`` with this command line, in a process that has imported PyTorch."""
        code = (*_files_of(function.partition(":")[0]), ROOT / "tests" / "forks.py")
        run = [partial(self.forks.run, function, arguments)]
        return self._keep([function, *arguments], [*reads, *code], writes, run)

    def start(
        self, *commands: Sequence[str], reads: Iterable[Path] = (), writes: Files = NO_FILES, stdin: str = ""
    ) -> Kept:
        """``python COMMAND``, one after the other."""
        runs = [partial(_start, command, stdin) for command in commands]
        return self._keep([json.dumps(commands), stdin], reads, writes, runs)

    def launch(self, *commands: Sequence[str], writes: Files = NO_FILES) -> Kept:
        """``python COMMAND``, one after the other, that start several processes: as forks of the one that has imported
        PyTorch."""
        runs = [partial(self.forks.run, "tests.forks:launch", command) for command in commands]
        return self._keep(["launch", json.dumps(commands)], [ROOT / "tests" / "forks.py"], writes, runs)

    def _keep(
        self, named: list[str], reads: Iterable[Path], writes: Files, runs: Sequence[Callable[[Path], Ended]]
    ) -> Kept:
        texts = [path.read_text(encoding="utf-8") for path in reads]
        directory = self.root / _stamp() / _digest([*named, *texts, *chain.from_iterable(writes.items())])
        with _only_one(directory.with_suffix(".lock")):
            if not _account(directory).exists():
                _write(directory, writes)
                begun = time.monotonic()
                ended = [asdict(run(directory)) for run in runs]
                known = {"ended": ended, "seconds": time.monotonic() - begun}
                _account(directory).write_text(json.dumps(known), encoding="utf-8")
        kept = _read(directory)
        self.used.append(kept)
        return kept


def _account(directory: Path) -> Path:
    """What is told of the run that left this directory; written last."""
    return directory.with_suffix(".json")


def _write(directory: Path, files: Files) -> None:
    """Nothing is left there of a session that was ended amid the run."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")


def _read(directory: Path) -> Kept:
    known = json.loads(_account(directory).read_text(encoding="utf-8"))
    *before, ended = (Ended(**one) for one in known["ended"])
    return Kept(directory, ended, known["seconds"], tuple(before))


def _start(command: Sequence[str], stdin: str, directory: Path) -> Ended:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    return Ended(result.returncode, result.stdout, result.stderr)


def forget(kept: Kept) -> None:
    """Whoever asks for it next records it anew."""
    with suppress(FileNotFoundError):
        _account(kept.directory).unlink()


def default_root() -> Path:
    return Path(os.environ.get(PLACE) or _BY_DEFAULT)


def tidy(root: Path) -> None:
    """Remove runs of code that is gone: all but the generations that sessions used last, this one's included."""
    now = root / _stamp()
    now.mkdir(parents=True, exist_ok=True)
    os.utime(now)
    by_use = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_use[_GENERATIONS:]:
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Processes that enter with the same path do so one after the other; the end of one, however it comes, lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.cache
def _stamp() -> str:
    """Names what all runs depend on."""
    code = [text for path in sorted(collecting_code()) for text in (str(path), path.read_text(encoding="utf-8"))]
    packages = sorted(entry.name for place in sys.path for entry in Path(place).glob("*.dist-info"))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None  # as `taskset` leaves
    return _digest([*code, *packages, sys.version, platform.machine(), f"{usable} of {os.cpu_count()}"])


def all_code() -> list[Path]:
    """What a run reads that judges itself."""
    return sorted(_PACKAGE.rglob("*.py"))


def collecting_code() -> set[Path]:
    """The files of `profkit.collect` and of what they import, wherever in a file the import stands, and the command."""
    found = {_PACKAGE / "cli" / name for name in ("__init__.py", "_recording.py", "record.py")}
    waiting = [*(_PACKAGE / "collect").rglob("*.py")]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported_by(path)
    return found


def _imported_by(path: Path) -> Iterator[Path]:
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("profkit."):
                yield from _files_of(name)


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, however deep: `ast.walk` takes five times as long, for it visits each expression."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, name, ())


def _files_of(name: str) -> Iterator[Path]:
    """The module's file and those of the packages around it; not the outermost, which knows of everything."""
    parts = name.split(".")
    for length in range(2, len(parts) + 1):
        at = ROOT.joinpath(*parts[:length])
        yield from (file for file in (at.with_suffix(".py"), at / "__init__.py") if file.is_file())


def _digest(texts: Iterable[str]) -> str:
    """The same for the same texts in the same order, and for no others."""
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:20]
