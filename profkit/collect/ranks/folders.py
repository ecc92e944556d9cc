"""Where the ranks of a launch record: one directory for all of them, and a folder in it for each.

All ranks must choose the same directory without asking each other, and the next launch must choose a new one. So the
name comes from something that all ranks share and that differs between launches: the launcher's name for the launch or,
if all processes run on one host, the process that started them. The first rank writes the name into the directory, and
a rank takes a folder by creating it. Neither can happen twice.

If all of that is the same for each launch (``--rdzv-id`` and a fixed port on several hosts, one shell that starts every
launch), a rank whose folder is taken goes on to the next number. The ranks agree on that if each of them had begun in
the earlier launches.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2s
from multiprocessing import parent_process
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from profkit.collect.program.clocks import time
from profkit.collect.ranks.identity import SPAWNED, find_place, launch_in
from profkit.collect.ranks.launchers import STARTED_BY_FIRST, Place, is_loopback, meeting_point
from profkit.core.errors import RunDirectoryError, UnreadableInput
from profkit.run.directory import LAUNCH_FILE, Launch, create_directory, is_run, load_run, numbered

_TRIES, _PATIENCE_S = 40, 0.05
"""How often and how long to wait until another rank has written the file that it created: two seconds in all, many
times the delay of a small file on a network file system."""
_DIGEST_BYTES = 4
_STARTED = 19
"""Index of the start time in ``/proc/PID/stat``, counted from the field after the name."""
_PROCESS = "process"


def claim_directory(wanted: Path | None, target_directory: Path) -> Path | None:
    """Create this process's own folder if it is one of several. It lies in ``wanted`` or, by default, in a folder of
    ``target_directory`` named after the launch. If another launch has that folder, it gets a number (`numbered`).
    Returns None for a single process.

    Raises `RunDirectoryError` if nothing can be written there.
    """
    place = find_place() or _unknown_place()
    if place is None:
        return None
    name = name_launch(place)
    at = wanted or target_directory / name
    try:
        return create_directory(_claim(at, name, place))
    except OSError as error:
        raise RunDirectoryError(at, f"cannot be written: {error.strerror or error}") from error


def settle(folder: Path) -> Path:
    """Rename a folder that was created before the rank was known, if the rank is known by now."""
    if folder.name != f"{_PROCESS}{os.getpid()}" or not launch_in(folder.parent):
        return folder
    with suppress(OSError, UnreadableInput):  # it stays where it is
        identity = load_run(folder).identity
        if identity is None or identity.rank < 0:
            return folder
        settled = folder.with_name(f"rank{identity.rank}")
        settled.mkdir()  # this process owns the name from here on
        folder.replace(settled)
        return settled
    return folder


def name_launch(place: Place) -> str:
    """The same for all ranks of a launch: ``torchrun-1f3a9c20``, ``slurm-12345.0``."""
    if place.launcher == "slurm":
        job, step, restarts = place.job
        again = f".{restarts}" if restarts not in ("", "0") else ""
        return f"slurm-{_plain(job)}.{_plain(step)}{again}"
    starter = _starter(place)
    digest = blake2s(repr((place.launcher, place.job, starter)).encode(), digest_size=_DIGEST_BYTES)
    return f"{place.launcher}-{digest.hexdigest()}"


def _unknown_place() -> Place | None:
    """The place of a `multiprocessing` child of the program, whose rank may become known later."""
    if parent_process() is None:
        return None
    return Place(-1, -1, launcher=SPAWNED, job=meeting_point(os.environ), is_one_host=is_loopback(os.environ))


def _claim(wanted: Path, name: str, place: Place) -> Path:
    """A new folder in the first directory that belongs to this launch or to none yet."""
    folder = f"rank{place.rank}" if place.rank >= 0 else f"{_PROCESS}{os.getpid()}"
    names = map(str, numbered(Path(name)))
    this = next(names)
    for directory in numbered(wanted):
        if not _is_of(directory, Launch(this, place.launcher, place.world_size)):
            continue
        with suppress(FileExistsError):
            (directory / folder).mkdir()
            return directory / folder
        this = next(names)
    raise AssertionError  # the numbers never end


def _is_of(directory: Path, launch: Launch) -> bool:
    """Whether the directory belongs to that launch. A directory of no launch is taken for it."""
    if is_run(directory) and not (directory / LAUNCH_FILE).exists():
        return False
    directory.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        with (directory / LAUNCH_FILE).open("xb", buffering=0) as file:
            file.write(msgspec.json.encode(launch))
        return True
    for _ in range(_TRIES):
        if there := launch_in(directory):
            return there == launch.launch
        time.sleep(_PATIENCE_S)
    return False


def _starter(place: Place) -> str:
    """The process that started all ranks, if they run on one host: the nearest ancestor that is no rank, because it
    lacks the variable with this rank. Wrappers in between have it. Lightning's starter is rank 0 itself, which sets the
    variable after its start."""
    if (parent := parent_process()) is not None and place.launcher == SPAWNED:
        return _describe(parent.pid or 0) if place.is_one_host or not any(place.job) else ""
    if not place.is_one_host:
        return ""
    with suppress(psutil.Error):
        this = psutil.Process()
        itself = [this] if place.launcher == STARTED_BY_FIRST else []
        for process in (*itself, *this.parents()):
            if not _is_rank(process, place.variable):
                return _describe(process.pid)
    return ""


def _is_rank(process: psutil.Process, variable: str) -> bool:
    """Whether it has this rank's variable. One that hides its variables is another user's, such as a scheduler."""
    try:
        theirs: dict[str, str] = process.environ()
    except (psutil.Error, OSError):
        return False
    return theirs.get(variable) == os.environ.get(variable)


def _describe(process: int) -> str:
    """An identifier that the system gives to no other process until it restarts."""
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return f"{process}.{status.rpartition(')')[2].split()[_STARTED]}"
    return str(process)


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text)
