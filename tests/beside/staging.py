"""Laying a program out afresh for each run, always at the same paths, as programs print where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipapp
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.beside.declared import FOLDER, Program
from tests.beside.modes import Staged

PACKAGE = "started_package"
_FOR_RUN = "run-"
_FULL_BYTES = 65_536


@contextmanager
def staged(program: Program, at: Path) -> Iterator[Staged]:
    """The program's code, an empty working directory, home and place for temporary files, all of them in ``at``."""
    shutil.rmtree(at, ignore_errors=True)
    for name in ("code", "work", "home", "temporary", "runs"):
        (at / name).mkdir(parents=True)
    target = _lay_out(program, at / "code")
    is_for_run = program.mount.startswith(_FOR_RUN)
    with _mounted(program.mount.removeprefix(_FOR_RUN), at / ("runs" if is_for_run else "work")):
        yield Staged(program, target, at / "runs" / "run")


def _lay_out(program: Program, code: Path) -> str:
    """Copy the code and return what Python is given to run it."""
    if program.start in ("package", "zipped", "zipapp"):
        package = code / PACKAGE
        package.mkdir()
        shutil.copy(program.path, package / "__main__.py")
        (package / "__init__.py").touch()
        if program.start == "package":
            shutil.copy(FOLDER / "_tiny.py", code)
            return PACKAGE
        if program.start == "zipapp":
            shutil.copy(FOLDER / "_tiny.py", package)
            zipapp.create_archive(package, code / f"{program.name}.pyz")
            return str(code / f"{program.name}.pyz")
        shutil.copy(FOLDER / "_tiny.py", code)
        shutil.make_archive(str(code / "archive"), "zip", code)
        shutil.rmtree(package)
        (code / "_tiny.py").unlink()
        return PACKAGE
    shutil.copy(FOLDER / "_tiny.py", code)
    if program.start in ("code", "text"):
        return program.path.read_text(encoding="utf-8")
    shutil.copy(program.path, code)
    return program.name if program.start == "module" else str(code / program.path.name)


@contextmanager
def _mounted(kind: str, at: Path) -> Iterator[None]:
    """A file system of memory, full or read-only. Raises `PermissionError` where this user may mount none."""
    if not kind:
        yield
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_FULL_BYTES}", "tmpfs", str(at)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        raise PermissionError("this user may mount no file system")
    try:
        if kind == "full":
            _fill(at / "filler")
        elif kind == "scarce":
            _fill(at / "filler")
            os.truncate(at / "filler", _FULL_BYTES // 2)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(at)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0" * 4096)
