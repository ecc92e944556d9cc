"""``python -m tests.beside.packages [NAME …]``: programs that import a package before torch, bare and recorded.

Environments are made in a folder of their own, with packages from pip's index; torch is that of the Python that runs
this. ``--write`` writes `RESULTS.md`.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import msgspec

from tests.beside.packages.environments import interpreter, prepare, version_of
from tests.beside.packages.packages import PACKAGES, Package
from tests.beside.packages.running import Row, run
from tests.beside.packages.table import render, render_sums

_RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> None:
    options = _options()
    packages = [one for one in PACKAGES if not options.names or one.name in options.names]
    with tempfile.TemporaryDirectory(prefix="packages-") as temporary:
        work = (options.work or Path(temporary)).resolve()
        rows = rows_of(packages, options.environments.resolve(), work)
    page = render(rows, f"torch {version('torch')}, Python {platform.python_version()}")
    if options.write:
        _RESULTS.write_text(page, encoding="utf-8")
    print(page if len(rows) < len(PACKAGES) else render_sums(rows))
    raise SystemExit(not all(row.is_right or row.absent for row in rows))


def rows_of(packages: Sequence[Package], environments: Path, work: Path) -> list[Row]:
    """The rows of these packages, and of the others those that are kept in the folder ``work`` from earlier."""
    environments.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    failures = prepare(packages, environments)
    kept = work / "rows.json"
    rows = (
        {row.package.name: row for row in msgspec.json.decode(kept.read_bytes(), type=list[Row])}
        if kept.exists()
        else {}
    )
    for package in packages:
        if why := failures.get(package.name):
            row = Row(package, absent=why)
        else:
            row = run(
                package, interpreter(package, environments), version_of(package, environments), work / package.imported
            )
        print(f"{package.name}: {'right' if row.is_right else row.absent or 'WRONG'}", flush=True)
        rows[package.name] = row
        kept.write_bytes(msgspec.json.encode(list(rows.values())))
    return [replace(rows[one.name], package=one) for one in PACKAGES if one.name in rows]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.beside.packages", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages; all by default")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path(tempfile.gettempdir()) / "packages-env",
        metavar="DIR",
        help="where virtual environments are made and kept. Default: %(default)s",
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="keep outputs, recordings and rows there; packages that are not named keep the rows of an earlier run",
    )
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    return parser.parse_args()


if __name__ == "__main__":
    main()
