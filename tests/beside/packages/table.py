"""The rows as a page of Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tests.beside.packages.running import Reach, Row

_HEAD = """# Packages around PyTorch, each imported before torch

Made by `python -m tests.beside.packages --write`, with {versions}. Each package's program is in `programs/`: it imports
the package first, then trains for some dozens of steps. It runs bare and under `profkit record`.

{sums}

| package | how torch comes in | recorded | steps (from, measured, timed) | output, status | profkit's first sentence |
|---|---|---|---|---|---|
"""


def render(rows: Sequence[Row], versions: str) -> str:
    page = _HEAD.format(versions=versions, sums=render_sums(rows)) + "".join(_line(row) for row in rows)
    findings = [f"- {row.package.name}: {'; '.join(row.findings)}\n" for row in rows if row.findings]
    remarks = [f"- {row.package.name}: {row.package.remark}\n" for row in rows if row.package.remark]
    notes = [f"- {row.package.name}: {_cell('; '.join(row.notes))}\n" for row in rows if row.notes]
    for title, lines in (
        ("Findings, medium and above", findings),
        ("Notes of the recordings", notes),
        ("Remarks", remarks),
    ):
        if lines:
            page += f"\n## {title}\n\n" + "".join(lines)
    return page


def render_sums(rows: Sequence[Row]) -> str:
    ran = [row for row in rows if not row.absent]
    return (
        f"{len(ran)} of {len(rows)} packages run here. Of these, {sum(row.is_recorded for row in ran)} are recorded, "
        f"{sum(row.has_steps for row in ran)} with the steps expected. "
        f"{sum(not row.difference for row in ran)} print the same, "
        f"{sum(len(set(row.statuses)) == 1 for row in ran)} end with the same status."
    )


def render_reach(reach: Reach) -> str:
    asked = f"asks `find_spec` ({', '.join(reach.questions)}), then " if reach.questions else ""
    if reach.plainly:
        return f"{asked}plain import"
    if reach.lazily:
        return f"{asked}lazy: `{reach.lazily}`"
    return f"{asked}not at all" if asked else "not at all"


def _line(row: Row) -> str:
    name = f"{row.package.name} {row.version}".strip()
    if row.absent:
        return f"| {_cell(name)} | does not run here: {_cell(row.absent)} | | | | |\n"
    bare, watched = row.statuses
    ends = f"status {bare}" if bare == watched else f"STATUS {bare} BECAME {watched}"
    output = f"OUTPUT DIFFERS, {row.difference}" if row.difference else "same"
    steps = f"{row.signal}, {row.measured}, {row.timed}" + (
        "" if row.has_steps else f" (EXPECTED {row.package.signal})"
    )
    cells = (
        name, render_reach(row.reach), "yes" if row.is_recorded else "NO", steps, f"{output}, {ends}", row.verdict
    )  # fmt: skip
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
