"""What the tools for agents do. Each returns the pages of its answer, and raises `ProfkitError` with what to do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.core.errors import ProfkitError, UsageError
from profkit.core.printing import visible, visible_row
from profkit.diagnosis.fixing.diagnosing import diagnose_copy
from profkit.diagnosis.fixing.patches import refuse_dirty, unified_diff, write_files
from profkit.diagnosis.fixing.proving import Fixes, Limits, prove_fixes
from profkit.diagnosis.fixing.trees import tree_of
from profkit.diagnosis.fixing.turns import Program, Stage
from profkit.diagnosis.launch.finding import find_ranks
from profkit.diagnosis.launch.launching import diagnose_ranks
from profkit.diagnosis.pipeline import diagnose_path
from profkit.diagnosis.settings import Settings, read_settings
from profkit.findings.values import Diagnosis, RunSummary
from profkit.report.agent import MOST_CHARACTERS, agent_pages
from profkit.report.json import load_json, load_run_json
from profkit.run.directory import DIAGNOSIS_FILE, RUN_FILE, load_run

Tell = Callable[[str], None]
_RECORDING_S = 600.0
"""Seconds for one recording: an agent's client gives up not much later."""
_MOST_RUNS = 500
"""Runs that are listed: who has more looks for the latest."""
_LINE = 200
"""Characters of a line about a run."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder that the tools see, and whether they may write into it."""

    root: Path
    may_write: bool = False

    def inside(self, given: str) -> Path:
        """The path below the folder, links resolved. Raises `UsageError` for any other, and for one that is missing."""
        try:
            path = (self.root / given).resolve()  # of an absolute path, that path
            exists = path.exists()
        except (OSError, ValueError, RuntimeError):
            raise UsageError(f"{visible(given)[:_LINE]}: is no name of a file") from None
        if not path.is_relative_to(self.root.resolve()):
            raise UsageError(f"{given}: lies outside of {self.root}; start `profkit mcp` in the folder that holds it")
        if not exists:
            raise UsageError(f"{given}: no such file or folder in {self.root}; `list_runs` names the recordings")
        return path

    def diagnose(self, target: str, arguments: Sequence[str], tell: Tell) -> list[str]:
        """The report of a recording, or of a script that is recorded in a copy of its folder."""
        path = self.inside(target)
        if path.suffix == ".py":
            with tempfile.TemporaryDirectory(prefix="profkit-agent-") as folder:
                tell("recording the program")
                stage = self._stage(path, arguments, None, folder)
                found = diagnose_copy(stage, self._settings(), {}, _RECORDING_S)
            name = path.relative_to(self.root.resolve()).as_posix()
            found = replace(found, run=_started_as(found.run, name, arguments))
        else:
            if arguments:
                raise UsageError("arguments are for a script only; this is a recording")
            tell("reading the recording")
            found = self._read(path)
        return agent_pages(found, self.root)

    def explain(self, what: str) -> list[str]:
        """The page of a rule, or how the savings of a recording came about."""
        from profkit.report.account import render_accounts
        from profkit.rules import all_rules, find_rule

        rules = all_rules()
        if what in rules or ("/" not in what and not os.path.exists(self.root / what)):
            found = find_rule(what)
            return paged(f"{found.name} ({found.kind.value})\n\n{found.page}")
        diagnosis = self._read(self.inside(what))
        models = {rule.name: rule.model for rule in rules.values()}
        return paged(render_accounts(diagnosis, list(enumerate(diagnosis.findings, 1)), models, 100, False))

    def compare(self, before: str, after: str) -> list[str]:
        """Two recordings, from before a change and from after it."""
        from profkit.diagnosis.compare import compare_paths
        from profkit.report import render_comparison

        comparison = compare_paths(self.inside(before), self.inside(after), False)
        return paged(render_comparison(comparison, "text", width=100))

    def list_runs(self) -> list[str]:
        """The run directories below the folder, the latest first."""
        root = self.root.resolve()
        found = [file.parent for file in root.glob(f"**/{RUN_FILE}") if file.resolve().is_relative_to(root)]
        known = [one for one in map(_known, found) if one is not None]
        runs = sorted(known, reverse=True)[:_MOST_RUNS]
        lines = [_line(run.relative_to(root), started, command, run) for started, run, command in runs]
        return paged("\n".join(lines) or "no recordings here: `diagnose` a script, or run `profkit record`")

    def fix(
        self,
        target: str,
        rule: str,
        arguments: Sequence[str],
        seed: int | None,
        unsafe: bool,
        most_s: float,
        tell: Tell,
    ) -> tuple[Fixes, list[str]]:
        """Try the changes of a script's findings in copies of its folder; nothing is written."""
        from profkit.report.trials.fixes import render_fixes

        path = self.inside(target)
        if path.suffix != ".py":
            raise UsageError(f"{target}: changes are tried on a script.py, which has to run")
        with tempfile.TemporaryDirectory(prefix="profkit-agent-") as folder:
            stage = self._stage(path, arguments, seed, folder)
            tell("recording the program")
            diagnosis = diagnose_copy(stage, self._settings(rule), {}, _RECORDING_S)
            fixes = prove_fixes(stage, diagnosis, Limits(most_s, unsafe, small=bool(rule)), tell)
        patch = unified_diff(fixes.root, fixes.after).decode("utf-8", "replace")
        text = render_fixes(replace(fixes, skipped={}), patch, "")
        return fixes, paged("\n".join(visible_row(line) for line in text.split("\n")))

    def write(self, fixes: Fixes) -> str:
        """Put what held into the files. Raises `UsageError` if that is not allowed."""
        self.refuse_writing()
        root = self.root.resolve()
        if outside := [name for name in fixes.after if not (fixes.root / name).resolve().is_relative_to(root)]:
            raise UsageError(f"{outside[0]}: lies outside of {self.root}; nothing was written")
        refuse_dirty(fixes.root)
        write_files(fixes.root, fixes.before, fixes.after)
        return ", ".join(str(name) for name in sorted(fixes.after)) or "nothing: no change held"

    def refuse_unsaved(self, target: str) -> None:
        """Raise `UsageError` before minutes of proof whose result could not be written."""
        self.refuse_writing()
        refuse_dirty(tree_of(self.inside(target), self.root).root)

    def refuse_writing(self) -> None:
        """Raise `UsageError` unless the server may write."""
        if not self.may_write:
            raise UsageError(
                "this server only reads: apply the patch yourself, or have it started as `profkit mcp --allow-write`"
            )

    def _stage(self, script: Path, arguments: Sequence[str], seed: int | None, folder: str) -> Stage:
        tree = tree_of(script, self.root)
        name = str(script.relative_to(tree.root))
        return Stage(tree, Program(name, tuple(arguments), seed=seed), Path(folder).resolve())

    def _settings(self, rule: str = "") -> Settings:
        return read_settings(self.root).overridden((rule,) if rule else (), (), None, None)

    def _read(self, path: Path) -> Diagnosis:
        if path.name == DIAGNOSIS_FILE:
            return load_json(path)
        if (path / DIAGNOSIS_FILE).exists():
            return load_run_json(path)
        if path.is_dir() and find_ranks(path):
            return diagnose_ranks(str(path)).diagnosis
        return diagnose_path(path)


def paged(text: str) -> list[str]:
    """The text in pages that end with a line, where that is possible."""
    pages, page = [], ""
    for line in text.splitlines(keepends=True):
        for start in range(0, len(line), MOST_CHARACTERS // 2):
            piece = line[start : start + MOST_CHARACTERS // 2]
            if len(page) + len(piece) > MOST_CHARACTERS - _LINE:
                pages.append(page)
                page = ""
            page += piece
    return [*pages, page] if page or not pages else pages


def one_page(pages: Sequence[str], number: int) -> str:
    """A page by its number from 1, which says how many there are. Raises `ProfkitError` for one that is not there."""
    if not 1 <= number <= len(pages):
        raise ProfkitError(f"there is no page {number}; the answer has {len(pages)}")
    if len(pages) == 1:
        return pages[0]
    more = f", ask for page={number + 1}" if number < len(pages) else ""
    return f"{pages[number - 1].rstrip()}\n\npage {number} of {len(pages)}{more}\n"


def _started_as(run: RunSummary, name: str, arguments: Sequence[str]) -> RunSummary:
    return replace(run, command=("python", name, *arguments))


def _known(run: Path) -> tuple[str, Path, tuple[str, ...]] | None:
    """When a run began, and its command; None for a file of that name that is another program's, or broken."""
    try:
        read = load_run(run)
    except (ProfkitError, OSError):
        return None
    return read.started or "", run, tuple(read.command)


def _line(name: Path, started: str, command: Sequence[str], run: Path) -> str:
    known = "diagnosed" if (run / DIAGNOSIS_FILE).exists() else "not diagnosed yet"
    return visible(f"{name.as_posix()}  {started or 'time unknown'}  {' '.join(command)}  {known}")[:_LINE]
