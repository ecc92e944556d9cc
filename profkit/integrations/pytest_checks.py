"""What a test marked ``profkit`` demands, and whether its recording meets that."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from profkit.core.errors import UsageError
from profkit.core.units import format_count
from profkit.findings.values import Diagnosis, Finding, Kind, Severity
from profkit.integrations.pytest_baselines import compare_with, store
from profkit.report.wording import cost, place, printable, printable_lines, verdict
from profkit.rules import find_rule
from profkit.rules.base import Need
from profkit.run.directory import REPORT_FILE, find_trace, load_run

if TYPE_CHECKING:
    from profkit.collect.recorder.profiler import profile

_MOST_REGRESSION = 0.05
"""About the least that two single runs can distinguish (`profkit.diagnosis.compare.step_times.EQUIVALENCE_BAND`)."""
_SEVERITIES = tuple(severity.value for severity in Severity if severity is not Severity.INFO)


class ProfkitWarning(UserWarning):
    """Something that a test demands could not be checked."""


@dataclass(frozen=True, slots=True)
class Demands:
    """The mark's arguments. Without a ``severity`` any is allowed."""

    forbid: tuple[str, ...] = ()
    severity: Severity | None = None
    baseline: str | None = None
    max_regression: float = _MOST_REGRESSION

    @classmethod
    def of(cls, mark: pytest.Mark) -> Demands:
        """Fails the test for arguments that make no sense."""
        given = dict(mark.kwargs)
        unknown = sorted(set(given) - set(cls.__dataclass_fields__)) or list(mark.args)
        if unknown:
            _refuse(f"it takes {', '.join(cls.__dataclass_fields__)}, by name: not {unknown}")
        if "max_regression" in given and not given.get("baseline"):
            _refuse("max_regression needs a baseline to compare with")
        if not any(given.get(name) for name in ("forbid", "severity", "baseline")):
            given["severity"] = "medium"
        baseline = given.get("baseline")
        return cls(
            _rules(given.get("forbid") or ()),
            _severity(given.get("severity")),
            None if baseline is None else str(baseline),
            _share(given.get("max_regression", _MOST_REGRESSION)),
        )


class Session:
    """Makes the recordings of one test: ``with session() as prof:``."""

    def __init__(self, item: pytest.Function, mark: pytest.Mark | None, directories: pytest.TempPathFactory) -> None:
        self._item, self._mark, self._directories = item, mark, directories
        self._count = 0

    @contextmanager
    def __call__(self, **settings: Any) -> Iterator[profile]:
        from profkit.collect.recorder.profiler import profile

        __tracebackhide__ = True
        demands = None if self._mark is None else Demands.of(self._mark)
        self._count += 1
        if self._count > 1 and demands is not None and demands.baseline is not None:
            _refuse("a test with a baseline makes one recording")
        traced = _is_traced()
        directory = self._directories.mktemp("profkit") / _name_of(self._item)
        with profile(directory, target=self._item.nodeid, **settings) as recording:
            yield recording
        if demands is not None:
            self._check(demands, recording.diagnosis if _was_recorded(directory) else None, directory, traced)

    def _check(self, demands: Demands, diagnosis: Diagnosis | None, directory: Path, traced: bool) -> None:
        __tracebackhide__ = True
        if diagnosis is None or Need.OPERATORS.value in diagnosis.skipped.values():
            _fail([f"profkit: nothing was recorded: {_reasons(directory)}"])
        report = f"report: {directory / REPORT_FILE}"
        self._item.add_report_section("call", "profkit", f"{verdict(diagnosis)}\n{report}")
        for rule in demands.forbid:
            if rule in diagnosis.skipped:
                _warn(f"{rule} could not look: {diagnosis.skipped[rule]}")
        found = [finding for finding in diagnosis.findings if _is_forbidden(finding, demands)]
        if found:
            title = f"profkit: {format_count(len(found), 'finding')} that this test forbids"
            _fail([title, *map(_describe, found), *map(printable, diagnosis.health), report])
        if demands.baseline is not None:
            baseline = self._item.path.parent / demands.baseline / _name_of(self._item)
            self._check_baseline(directory, baseline, demands.max_regression, traced)

    def _check_baseline(self, directory: Path, baseline: Path, max_regression: float, traced: bool) -> None:
        __tracebackhide__ = True
        if self._item.config.getoption("profkit_update_baseline"):
            problem = store(directory, baseline)
            if problem is not None:
                _refuse(problem)
            self._item.add_report_section("call", "profkit", f"stored as the baseline: {baseline}")
            return
        if traced:
            _warn("not compared with the baseline: a debugger or a coverage tool slows the steps down")
            return
        judged = compare_with(baseline, directory, max_regression)
        if judged.warning:
            _warn(judged.warning)
        if judged.failure:
            _fail([f"profkit: {judged.failure}", f"this run: {directory}"])


def _is_forbidden(finding: Finding, demands: Demands) -> bool:
    """Faults of the severity or above, and anything that a forbidden rule finds."""
    least = demands.severity
    severe = least is not None and finding.kind is Kind.FAULT and finding.severity.rank <= least.rank
    return severe or finding.rule in demands.forbid


def _rules(names: str | Sequence[str]) -> tuple[str, ...]:
    __tracebackhide__ = True
    listed = (names,) if isinstance(names, str) else tuple(names)
    try:
        return tuple(find_rule(name).name for name in listed)
    except UsageError as error:
        raise _refusal(f"forbid: {error}") from None


def _severity(name: object) -> Severity | None:
    __tracebackhide__ = True
    if name is not None and name not in _SEVERITIES:
        _refuse(f"severity must be one of {', '.join(_SEVERITIES)}: not {name!r}")
    return None if name is None else Severity(name)


def _share(limit: object) -> float:
    __tracebackhide__ = True
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit < float("inf"):
        _refuse(f"max_regression must be a share such as 0.05: not {limit!r}")
    return float(limit)


def _refuse(cause: str) -> NoReturn:
    __tracebackhide__ = True
    raise _refusal(cause)


def _refusal(cause: str) -> BaseException:
    return pytest.fail.Exception(f"pytest.mark.profkit: {cause}", pytrace=False)


def _fail(paragraphs: Sequence[str]) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail("\n".join(paragraphs), pytrace=False)


def _warn(text: str) -> None:
    warnings.warn(ProfkitWarning(f"profkit: {text}"), stacklevel=2)


def _describe(finding: Finding) -> str:
    lines = [f"{finding.severity.value} {printable(finding.rule)}: {printable(finding.message)}"]
    if finding.location is not None:
        source = " ".join(printable_lines(finding.location.source)).strip()
        lines += [f"  where  {place(finding.location)}", *([f"             {source}"] if source else [])]
    lines += [f"  cost   {cost(finding)}", f"  fix    {' '.join(printable_lines(finding.fix))}"]
    return "\n".join(lines)


def _was_recorded(directory: Path) -> bool:
    return directory.is_dir() and find_trace(directory) is not None


def _reasons(directory: Path) -> str:
    notes = load_run(directory).notes if directory.is_dir() else ()
    return "; ".join(notes) or "no PyTorch operator ran on this thread, or another recording is running"


def _name_of(item: pytest.Function) -> str:
    """A file name for the test, unique among the tests in its folder."""
    module, _, rest = item.nodeid.rpartition("/")[2].partition("::")
    return re.sub(r"[^\w.-]+", "-", f"{module.removesuffix('.py')}-{rest}").strip("-")


def _is_traced() -> bool:
    """Whether a debugger or a coverage tool slows down the program's lines."""
    monitoring: Any = getattr(sys, "monitoring", None)  # since Python 3.12
    tools = (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID) if monitoring else ()
    return sys.gettrace() is not None or any(monitoring.get_tool(tool) is not None for tool in tools)
