"""The table of results as JSON and as Markdown, both written anew with each row, and the log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.gpu.rows import COULD_NOT, Figure, Row

JSON, MARKDOWN, LOG = "results.json", "results.md", "log.txt"
_LOG_BYTES = 4_000_000
_OF_RANGES = (" from", " to")


class Results:
    """What was found so far. ``machine`` says where."""

    def __init__(self, directory: Path, machine: Mapping[str, Any]) -> None:
        self._directory, self._machine = directory, dict(machine)
        self._rows: dict[tuple[str, str], Row] = {}
        self._left_out: list[str] = []
        self._logged_bytes = 0
        self._write()

    def add(self, row: Row, left_out: tuple[str, ...] = ()) -> None:
        """``left_out`` are recordings of it that found no room."""
        self._rows[row.part, row.name] = row
        self._left_out += left_out
        self._write()
        self.log(f"{row.part}: {row.name}: {row.outcome}")

    def log(self, text: str) -> None:
        """A line of the log, which also goes to stderr."""
        line = f"{time.strftime('%H:%M:%S')} {text}\n"
        os.write(2, line.encode())
        self._logged_bytes += len(line.encode())
        if self._logged_bytes <= _LOG_BYTES:
            with (self._directory / LOG).open("a", encoding="utf-8") as log:
                log.write(line)

    def _write(self) -> None:
        rows = [
            {"part": row.part, "name": row.name, "outcome": row.outcome, "figures": dict(row.figures)}
            for row in self._rows.values()
        ]
        value = {"machine": self._machine, "rows": rows, "left_out": self._left_out}
        self._replace(JSON, json.dumps(value, indent=1))
        self._replace(MARKDOWN, self._as_markdown())

    def _replace(self, name: str, text: str) -> None:
        """At no moment is there half a file."""
        fresh = self._directory / f"{name}.new"
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(self._directory / name)

    def _as_markdown(self) -> str:
        lines = ["# What a machine with a GPU showed", ""]
        lines += [f"- {name}: {value}" for name, value in self._machine.items()]
        for part in dict.fromkeys(part for part, _ in self._rows):
            lines += ["", f"## {part}", "", *_table([row for row in self._rows.values() if row.part == part])]
        if self._left_out:
            lines += ["", "Recordings that found no room:", "", *(f"- {name}" for name in self._left_out)]
        return "\n".join(lines)


def _table(rows: list[Row]) -> list[str]:
    """A line for each row, and one for all that could not be done for the same reason. Ranges are in the JSON alone."""
    done = [row for row in rows if not row.outcome.startswith(COULD_NOT)]
    columns = dict.fromkeys(column for row in done for column in row.figures if not column.endswith(_OF_RANGES))
    cells = [[row.name, *(_cell(row.figures.get(column)) for column in columns), row.outcome] for row in done]
    head = ["what", *columns, "outcome"]
    table = (head, ["---"] * len(head), *cells) if cells else ()
    reasons = dict.fromkeys(row.outcome for row in rows if row.outcome.startswith(COULD_NOT))
    return [
        *("| " + " | ".join(map(_escaped, line)) + " |" for line in table),
        *([""] if table and reasons else []),
        *(f"- {reason}: {', '.join(row.name for row in rows if row.outcome == reason)}" for reason in reasons),
    ]


def _cell(figure: Figure) -> str:
    if figure is None:
        return ""
    if isinstance(figure, float):
        return f"{figure:,.4g}" if abs(figure) < 1e5 else f"{figure:,.0f}"
    return f"{figure:,}" if isinstance(figure, int) and not isinstance(figure, bool) else str(figure)


def _escaped(cell: str) -> str:
    return " ".join(cell.replace("|", "\\|").split())
