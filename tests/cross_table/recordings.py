"""The recordings at hand, each with the rules that should find something there.

Recordings of scenarios and programs are those that tests have kept, of any age: nothing is recorded for the table. The
name of a recording shows its source, as in ``programs/click_through`` or ``h100/programs/no_tf32/fix/plain``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from profkit.diagnosis.catalogue import list_scenarios, recordings_root
from profkit.run.directory import RUN_FILE, load_run
from tests.end_to_end.programs import all_programs
from tests.h100.survey import PROGRAMS, SCENARIOS, Recording, find_recordings

KNOWN = Path(__file__).parent / "known.json"
_IN_TREE = Path(__file__).parents[1] / "h100" / "recordings"
Expected = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Recorded:
    """``expected`` are the rules that should find something; any other finding needs a reason."""

    name: str
    path: Path
    expected: frozenset[str]


def find_all(kept: Path, corpus: Path) -> list[Recorded]:
    """Every existing recording by name; of several versions the latest."""
    sources = (
        _kept(kept),
        _committed(),
        _of_h100("h100-in-tree", _IN_TREE),
        _of_h100("h100", corpus / "h100"),
        _of_kineto(corpus / "kineto"),
    )
    found = {one.name: one for source in sources for one in source}
    return [found[name] for name in sorted(found)]


def read_known() -> dict[str, list[dict[str, str]] | dict[str, list[str]]]:
    """What people found out: the rules that apply to recordings made elsewhere, and reasons for other findings."""
    known: dict[str, list[dict[str, str]] | dict[str, list[str]]] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return known


def expected_elsewhere() -> dict[str, list[str]]:
    """The rules that should find something in each recording made elsewhere, the largest fault first."""
    expected = read_known()["expected"]
    assert isinstance(expected, dict)
    return expected


def _of_scenarios() -> Expected:
    return {scenario.name: frozenset(scenario.triggers) for scenario in list_scenarios()}


def _kept(root: Path) -> Iterator[Recorded]:
    """The recordings kept by tests, oldest first."""
    triggers = _of_scenarios()
    marks = {program.path.stem: frozenset(rule for _, rule in program.marks) for program in all_programs()}
    for path in sorted(root.glob(f"*/*/run/{RUN_FILE}"), key=lambda path: path.stat().st_mtime):
        run, directory = load_run(path.parent), path.parent
        target = run.target or ""
        if target in triggers and run.variant:
            expected = triggers[target] if run.variant == "pitfall" else frozenset[str]()
            yield Recorded(f"scenarios/{target}/{run.variant}", directory, expected)
        elif Path(target).parent.name == "programs" and Path(target).stem in marks:
            yield Recorded(f"programs/{Path(target).stem}", directory, marks[Path(target).stem])


def _committed() -> Iterator[Recorded]:
    """The recordings in the tree, of scenarios that need a GPU."""
    root, triggers = recordings_root(), _of_scenarios()
    for path in sorted(root.glob(f"*/*/*/{RUN_FILE}")) if root else ():
        device, scenario, variant = path.parent.relative_to(root or Path()).parts
        expected = triggers[scenario] if variant == "pitfall" else frozenset[str]()
        yield Recorded(f"recorded/{device}/{scenario}/{variant}", path.parent, expected)


def _of_h100(source: str, root: Path) -> Iterator[Recorded]:
    truth_file = root / "truth.json"
    if not truth_file.is_file():
        return
    truth, triggers = json.loads(truth_file.read_text(encoding="utf-8")), _of_scenarios()
    for one in find_recordings(root, truth):
        name = "/".join(part for part in (source, one.section, one.program, one.variant, one.form) if part)
        yield Recorded(name, one.path, frozenset(_rules_of(one, truth.get(one.program, {}), triggers)))


def _rules_of(one: Recording, truth: Mapping[str, object], triggers: Expected) -> Iterable[str]:
    if one.section == SCENARIOS:
        return triggers.get(one.program, frozenset()) if one.variant == "pitfall" else ()
    if one.section != PROGRAMS or one.variant != "pitfall" or not truth.get("rule"):
        return ()
    also = truth.get("also")
    return (str(truth["rule"]), *(map(str, also) if isinstance(also, list) else ()))


def _of_kineto(root: Path) -> Iterator[Recorded]:
    for name, rules in expected_elsewhere().items():
        if (root / name).is_file():
            yield Recorded(f"kineto/{name}", root / name, frozenset(rules))
