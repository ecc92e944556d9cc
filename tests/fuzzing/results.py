"""RESULTS.md: a row for each kind of input, replaced by each full run of it."""

from __future__ import annotations

import platform
from pathlib import Path

from tests.fuzzing.running import MOST_BYTES, MOST_SECONDS, Kind, Tally

RESULTS = Path(__file__).with_name("RESULTS.md")
_HEAD = f"""# What fuzzing shows

Written by `python -m tests.fuzzing all`; a full run of one kind replaces its row. Seconds are those of reading, judging
and rendering, in one process. Every input must be read, or refused in one line, within {MOST_SECONDS:g} s and
{MOST_BYTES >> 20} MiB beyond what the process held. "Judged" ones went through every rule. Of "rendered" ones all
reports were checked for text of the input that became markup, a link, a control character or a command.

| kind | inputs | read | refused | judged | rendered | seconds | slowest (s) | most (MB) | broken | defects found |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""
_DEFECTS = "\n## Defects that it found, all mended\n"


def save(kind: Kind, tally: Tally, path: Path = RESULTS) -> None:
    """Replace the kind's row and its list of defects."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    rows = {name: line for name, line in rows.items() if name not in ("kind", "---")}
    figures = (tally.inputs, tally.read, tally.refused, tally.judged, tally.rendered, round(tally.seconds))
    cells = [
        kind.name,
        *(f"{one:,}" for one in figures),
        f"{tally.slowest_seconds:.2f}",
        f"{tally.grown_bytes / 1e6:.0f}",
        str(len(tally.failures)),
        str(len(kind.found)),
    ]
    rows[kind.name] = f"| {' | '.join(cells)} |"
    lists = {part.partition("\n")[0]: part for part in text.partition(_DEFECTS)[2].split("\n### ")[1:]}
    lists[kind.name] = f"{kind.name}\n\n" + "\n".join(f"- {one}" for one in kind.found)
    shown = [f"\n### {part.rstrip()}\n" for name, part in sorted(lists.items()) if "\n- " in part]
    made_with = f"\nPython {platform.python_version()} on {platform.system()}.\n"
    table = "\n".join(rows[name] for name in sorted(rows))
    path.write_text(f"{_HEAD}{table}\n{made_with}{_DEFECTS}{''.join(shown)}", encoding="utf-8")
