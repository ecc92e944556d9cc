"""A program, its data and its edits in a work directory, so that the clone that it comes from stays as it is."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from tests.real_programs.programs import Program, edited

_HERE = Path(__file__).parent


def absence(program: Program, clones: Path) -> str:
    """Why the program cannot be run here, or nothing."""
    wanted = program.copied if program.driver else (*program.copied, program.path)
    lacking = [part for part in wanted if not (clones / program.folder / part).exists()]
    if lacking:
        return f"no {program.folder}/{lacking[0]}"
    modules = [module for module in program.needs if importlib.util.find_spec(module) is None]
    return f"{', '.join(modules)} not installed" if modules else ""


def stage(program: Program, clones: Path, at: Path) -> None:
    """The program as it is started, in a folder that does not exist yet."""
    at.mkdir(parents=True)
    for part in program.copied:
        _copy(clones / program.folder / part, at / part)
    if program.driver:
        (at / program.started_in).mkdir(parents=True, exist_ok=True)
        shutil.copy(_HERE / program.path, script_in(program, at))
    for place, write in program.data.items():
        write(at / place)
    for pattern, replacement, *file in program.edits:
        path = at / file[0] if file else script_in(program, at)
        text = path.read_text(encoding="utf-8")
        path.write_text(edited(text, pattern, replacement), encoding="utf-8")


def script_in(program: Program, at: Path) -> Path:
    return at / program.started_in / Path(program.path).name if program.driver else at / program.path


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(
            source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git", "*.png", "*.gif")
        )
    else:
        shutil.copy(source, target)
