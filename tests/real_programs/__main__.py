"""``python -m tests.real_programs FOLDER``: public programs, bare and under profkit by turns. Nothing is fetched.

FOLDER holds clones of the repositories that `tests/real_programs/programs.py` lists, each in a folder with the
repository's name; packages are those of the Python that runs this.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.real_programs.programs import PROGRAMS, Program
from tests.real_programs.running import Row, compared, compile_profkit, findings_in, turn
from tests.real_programs.staging import absence, stage
from tests.real_programs.table import render, render_sums


def main() -> None:
    options = _options()
    named = {program.name: program for program in PROGRAMS}
    programs = [named[name] for name in options.only or named]
    compile_profkit()
    with tempfile.TemporaryDirectory(prefix="real-programs-") as temporary:
        work = (options.work or Path(temporary)).resolve()
        rows = []
        for program in programs:
            rows.append(run(program, options.folder, work / program.name, options.rounds, options.limit))
            print(render(rows[-1]), flush=True)
    print("\n" + render_sums(rows))
    if options.json:
        overheads = [{"overhead_s": row.overhead_s, "in_budget": row.in_budget} for row in rows]
        rows_out = [asdict(row) | overhead for row, overhead in zip(rows, overheads, strict=True)]
        options.json.write_text(json.dumps(rows_out, indent=1) + "\n", encoding="utf-8")


def run(program: Program, clones: Path, work: Path, rounds: int, limit_s: float) -> Row:
    if absent := absence(program, clones):
        return Row(program.name, absent=absent)
    shutil.rmtree(work, ignore_errors=True)
    try:
        stage(program, clones, work / "staged")
    except LookupError as problem:
        return Row(program.name, error=str(problem))
    bare, watched = [], []
    for number in range(rounds):
        bare.append(turn(program, work / "staged", work / "run", limit_s))
        recording = work / f"recording{number + 1}"
        watched.append(turn(program, work / "staged", work / "run", limit_s, recording))
    (work / "bare.txt").write_text(bare[-1].output + bare[-1].errors)
    (work / "profkit.txt").write_text(watched[-1].output + watched[-1].errors)
    if bare[-1].status:
        lines = bare[-1].errors.strip().splitlines() or ["no message"]
        return Row(program.name, error=f"bare it ends with status {bare[-1].status}: {lines[-1]}")
    try:
        verdict, findings = findings_in(recording)
    except OSError as problem:
        verdict, findings = f"no diagnosis: {problem}", ()
    return compared(program, bare, watched, verdict, findings)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.real_programs", description=__doc__)
    parser.add_argument("folder", type=Path, help="clones of the repositories")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[program.name for program in PROGRAMS])
    parser.add_argument(
        "--rounds", type=int, default=1, help="turns bare and under profkit; medians are compared. Default: %(default)s"
    )
    parser.add_argument(
        "--limit", type=float, default=300, metavar="S", help="a turn that takes longer is killed. Default: %(default)s"
    )
    parser.add_argument(
        "--work", type=Path, help="keep copies, outputs and recordings here; by default they go to a temporary folder"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
