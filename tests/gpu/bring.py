"""``python -m tests.gpu.bring FOLDER``: scenarios' recordings out of the archives of a run, to ``traces/recorded``.

The archives may come from anywhere: only plain files with plain names are taken, and never more than a run packs. A
scenario is taken if it exists here and both variants are whole, and then replaces what was there. All else that the
archives hold, such as snapshots, goes to ``--others`` if that is given.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from profkit.core.errors import ProfkitError
from profkit.diagnosis.catalogue import scenario_names
from profkit.run.directory import RUN_FILE, find_trace, load_run
from tests.gpu.archives import unpack

_RECORDED = Path(__file__).parents[2] / "traces" / "recorded"
_VARIANTS = ("pitfall", "fix")
_LARGEST_BYTES = 1_000_000
"""A scenario's recording that is larger does not belong into a repository."""


@dataclass(frozen=True, slots=True)
class Brought:
    """``scenarios`` are ``<device>/<scenario>``; ``problems`` say in a line each what was left out."""

    scenarios: tuple[str, ...]
    problems: tuple[str, ...]


def bring(folder: Path, into: Path, others: Path | None = None, largest_bytes: int = _LARGEST_BYTES) -> Brought:
    """Unpack all archives in ``folder`` and put the scenarios' recordings into ``into``."""
    brought: list[str] = []
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="profkit-bring-") as temporary:
        for archive in sorted(folder.glob("*.tar.gz")):
            problems += unpack(archive, Path(temporary)).problems
        for directory in _scenarios(Path(temporary)):
            name = f"{directory.parent.name}/{directory.name}"
            if reason := _why_not(directory, largest_bytes):
                problems.append(f"{name}: left out: {reason}")
                continue
            _replace(directory, into / name)
            brought.append(name)
        if others is not None:
            shutil.copytree(temporary, others, dirs_exist_ok=True)
    return Brought(tuple(brought), tuple(problems))


def _scenarios(root: Path) -> Iterator[Path]:
    """Folders ``<device>/<scenario>`` with a variant in them."""
    found = {path.parent for variant in _VARIANTS for path in root.glob(f"*/*/{variant}") if path.is_dir()}
    yield from sorted(found)


def _why_not(directory: Path, largest_bytes: int) -> str | None:
    if directory.name not in scenario_names():
        return "no scenario has this name"
    if {path.name for path in directory.iterdir()} != set(_VARIANTS):
        return "it is not its two variants"
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    if size > largest_bytes:
        return f"it has {size / 1e6:.1f} MB"
    return next(filter(None, map(_what_lacks, (directory / variant for variant in _VARIANTS))), None)


def _what_lacks(recording: Path) -> str | None:
    if not (recording / RUN_FILE).is_file():
        return f"its {recording.name} has no {RUN_FILE}"
    try:
        load_run(recording)
    except ProfkitError as error:
        return str(error)
    return None if find_trace(recording) else f"its {recording.name} has no trace"


def _replace(directory: Path, target: Path) -> None:
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(directory, fresh)
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 if something was left out."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bring", description=__doc__)
    parser.add_argument("folder", type=Path, help="where a run's files lie")
    parser.add_argument("--into", type=Path, default=_RECORDED, metavar="DIR", help="Default: traces/recorded")
    parser.add_argument("--others", type=Path, metavar="DIR", help="where snapshots and the like go")
    parser.add_argument(
        "--largest", type=int, default=_LARGEST_BYTES, metavar="BYTES", help="of a scenario. Default: %(default)s"
    )
    options = parser.parse_args(arguments)
    brought = bring(options.folder, options.into, options.others, options.largest)
    for name in brought.scenarios:
        print(name)
    for problem in brought.problems:
        print(problem, file=sys.stderr)
    return int(bool(brought.problems))


if __name__ == "__main__":
    sys.exit(main())
