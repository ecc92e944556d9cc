"""IPython and notebooks: ``%load_ext profkit``, then cells that begin with ``%%profkit``."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import replace
from types import CodeType
from typing import Any

from profkit.collect.program.frames import walk_up
from profkit.findings.values import Diagnosis, Finding, Location
from profkit.run.plan import Plan

_MAGIC = "profkit"


def load(shell: Any) -> None:
    """Add the cell magic to the shell."""

    def run(line: str, cell: str) -> Diagnosis | None:
        return run_cell(shell, line, cell)

    run.__doc__ = """Run the cell, record a few of its steps, and return what to change: the diagnosis.

    ``%%profkit [--wait N] [--warmup N] [--active N] [--output DIR]``

    The numbers set how many steps are timed without a profiler, recorded to find out which line runs what, and
    measured. DIR is the run directory, by default below ``traces``. Steps are found from the optimizer, the DataLoader,
    backward passes or calls of the model. The last expression is displayed and the cell's names stay, as without the
    magic.
    """
    shell.register_magic_function(run, magic_kind="cell", magic_name=_MAGIC)


def unload(shell: Any) -> None:
    shell.magics_manager.magics["cell"].pop(_MAGIC, None)


def run_cell(shell: Any, line: str, cell: str) -> Diagnosis | None:
    """Run a cell under `profkit.profile`; its errors propagate unchanged. None if nothing was recorded."""
    from profkit.collect.recorder.profiler import profile

    settings = _parse(line)
    body, last = _compile(shell, line, cell)
    with profile(target="notebook", **settings) as recording:
        exec(body, shell.user_ns)  # noqa: S102  # running the user's cell is the purpose
        value = None if last is None else eval(last, shell.user_ns)  # noqa: S307  # as above
    if value is not None:
        from IPython.display import display

        display(value)
    found: Diagnosis | None = recording.diagnosis
    return None if found is None else _with_names_of_cells(found, shell)


def _parse(line: str) -> dict[str, Any]:
    """The settings of `profkit.profile`; raises IPython's own `UsageError` for any other line."""
    from IPython.core.error import UsageError
    from IPython.core.magic_arguments import MagicArgumentParser

    parser = MagicArgumentParser(f"%%{_MAGIC}")
    for name in ("wait", "warmup", "active"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--output", dest="directory")
    settings = {name: value for name, value in vars(parser.parse_argstring(line)).items() if value is not None}
    try:
        Plan(**{name: value for name, value in settings.items() if name != "directory"})
    except ValueError as error:
        raise UsageError(f"%%{_MAGIC}: {error}") from error
    return settings


def _compile(shell: Any, line: str, cell: str) -> tuple[CodeType, CodeType | None]:
    """The cell, and separately its last expression if it ends in one, with the line numbers that the cell shows."""
    source = shell.transform_cell(cell)
    above = [f"%%{_MAGIC} {line}".rstrip()]
    for text in cell.splitlines():  # IPython drops empty lines at the start
        if text.strip():
            break
        above.append("")
    whole = "\n".join([*above, source])
    name = shell.compile.cache(whole, _number_of_cell(shell))
    tree = shell.transform_ast(ast.increment_lineno(shell.compile.ast_parse(source, name), len(above)))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body: CodeType = shell.compile(tree, name, "exec")
    return body, None if last is None else shell.compile(ast.Expression(last.value), name, "eval")


def _number_of_cell(shell: Any) -> int:
    """The number of the cell that runs the magic: some versions of IPython count before a cell runs, some after."""
    names = (shell.compile.format_code_name(frame.f_code.co_filename) for frame in walk_up(sys._getframe()))
    label = next((name[1] for name in names if name is not None), "")
    digits = re.search(r"\d+", label)
    return int(digits[0]) if digits else int(shell.execution_count)


def _with_names_of_cells(diagnosis: Diagnosis, shell: Any) -> Diagnosis:
    """Name cells as IPython's tracebacks do, ``In[3]``, instead of by the file name of their code."""

    def rename(location: Location) -> Location:
        known = shell.compile.format_code_name(location.file)
        return location if known is None else replace(location, file=known[1])

    def of(finding: Finding) -> Finding:
        location = None if finding.location is None else rename(finding.location)
        return replace(finding, location=location, also=tuple(map(rename, finding.also)))

    return replace(diagnosis, findings=tuple(map(of, diagnosis.findings)))
