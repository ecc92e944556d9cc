"""The rows as text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from tests.real_programs.running import Found, Row


def render(row: Row) -> str:
    if row.absent:
        return f"{row.name}: absent ({row.absent})"
    if row.error:
        return f"{row.name}: not compared ({row.error})"
    outputs = {
        True: "same output",
        False: f"OUTPUT DIFFERS ({row.difference})",
        None: f"output not compared ({row.difference})",
    }
    bare, watched = row.status
    status = f"status {bare}" if bare == watched else f"STATUS {bare} BECAME {watched}"
    budget = "within the budget" if row.in_budget else "OVER THE BUDGET"
    walls = f"bare {row.bare_s:.1f} s, profkit {row.profkit_s:.1f} s, overhead {row.overhead_s:+.1f} s, {budget}"
    lines = [
        f"{row.name}: {outputs[row.same_output]}, {status}",
        f"  {walls} (processor time {row.bare_cpu_s:.1f} and {row.profkit_cpu_s:.1f} s)",
        f"  {row.verdict}",
    ]
    return "\n".join([*lines, *(_finding(found) for found in row.findings)])


def _finding(found: Found) -> str:
    share = "" if found.fraction is None else f" {found.fraction:.1%}"
    if found.low is not None and found.high is not None:
        share += f" ({found.low:.1%} to {found.high:.1%})"
    head = f"  {found.severity} {found.rule} {found.where}{share}"
    return head + "\n" + fill(found.message, 116, initial_indent="    ", subsequent_indent="    ")


def render_sums(rows: Sequence[Row]) -> str:
    absent, errors = sum(bool(row.absent) for row in rows), sum(bool(row.error) for row in rows)
    ran = [row for row in rows if not row.absent and not row.error]
    comparable = [row for row in ran if row.same_output is not None]
    lines = [
        f"{len(ran)} programs ran, {errors} could not be compared, {absent} are absent",
        f"same output: {sum(row.same_output is True for row in comparable)} of {len(comparable)}",
        f"same status: {sum(row.status[0] == row.status[1] for row in ran)} of {len(ran)}",
        f"within the budget: {sum(row.in_budget for row in ran)} of {len(ran)}",
        f"findings of medium and above: {sum(len(row.findings) for row in ran)}",
    ]
    return "\n".join(lines)
