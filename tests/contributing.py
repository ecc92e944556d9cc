"""The parts of CONTRIBUTING.md that are made from the code: the tree of rooms and the order of the layers.

    python -m tests.contributing

writes them anew, each between the two comments that bear its name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from textwrap import fill

from tests.test_imports import LAYERS, PACKAGE, ROOMS, SIDE_DOORS

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
_WIDTH = 118
_NAMES = 16


def draw_tree() -> str:
    """The rooms of profkit in the order in which data flows, each with its sentence."""
    return "\n".join(["```", *(_row(room, summary(PACKAGE / room / "__init__.py")) for room in ROOMS), "```"])


def list_layers() -> str:
    """The layers, lowest first, and what stands beside them."""
    sides = [
        f"`{name}` stands aside and may import {', '.join(sorted(allowed, key=LAYERS.index))} alone."
        for name, allowed in SIDE_DOORS.items()
    ]
    return "\n".join(["```", fill(" → ".join(LAYERS), _WIDTH), "```", "", *sides])


PARTS = {"tree": draw_tree, "layers": list_layers}


def with_parts(page: str) -> str:
    """The page with each part as the code has it now."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: python -m tests.contributing -->", f"\n<!-- end of {name} -->"
        assert page.count(begin) == page.count(end) == 1, f"{PAGE.name} has no place for {name}"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n{make()}{end}{rest.partition(end)[2]}"
    return page


def _row(room: str, sentence: str) -> str:
    text = re.sub(r"``?", "", sentence)
    return fill(f"{room}/".ljust(_NAMES) + text, _WIDTH, subsequent_indent=" " * _NAMES)


def summary(path: Path) -> str:
    """The first paragraph of a file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(with_parts(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
