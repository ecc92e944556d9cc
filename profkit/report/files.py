"""The two reports in a run directory."""

from __future__ import annotations

from pathlib import Path

from profkit.core.errors import RunDirectoryError
from profkit.core.files.writing import write_file
from profkit.findings.values import Diagnosis
from profkit.report import render
from profkit.rules import all_rules
from profkit.run.directory import DIAGNOSIS_FILE, REPORT_FILE, REPORTS, check_replaceable


def write_reports(diagnosis: Diagnosis, directory: Path, shown: Diagnosis | None = None, editor: str = "") -> None:
    """Write ``diagnosis.json`` and ``report.html``; raises `RunDirectoryError` if that fails.

    The page shows ``shown`` instead of the diagnosis if it is given. ``editor`` is the template of links to a line.
    """
    check_replaceable(directory, REPORTS)
    page = render(shown or diagnosis, "html", pages=rule_pages(), editor=editor)
    try:
        write_file(directory, DIAGNOSIS_FILE, render(diagnosis, "json").encode())
        write_file(directory, REPORT_FILE, page.encode())
    except OSError as error:
        raise RunDirectoryError(directory, f"cannot be written: {error.strerror or error}") from error


def rule_pages() -> dict[str, str]:
    """Each rule's page, by its name."""
    return {rule.name: rule.page for rule in all_rules().values()}
