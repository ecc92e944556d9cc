"""profkit: what to change in a slow or memory-hungry PyTorch program, on which line, and what that gives back.

::

    with profkit.profile("traces/exp1") as prof:
        for batch in loader:
            train_step(batch)
            prof.step()              # optional
    print(prof.diagnosis)

    profkit.diagnose("trace.json.gz")
    profkit.compare("traces/before", "traces/after")
    profkit.load("traces/exp1").findings

Inside, a room is a folder, and each knows only those above it here, in the order in which data flows:

========================  ============================================================================
``core``                  what all may use: errors, units, marks, files, failures
``run``                   what one recording is on disk
``source``                the program's text
``collect``               a program → a run directory; with the planner it alone imports PyTorch
``trace``                 files → columns
``derive``                columns → facts
``findings``              the values that a diagnosis consists of
``patterns``              facts → what several rules look for
``savings``               the step replayed without a fault
``rules``                 one file for each fault that has a name
``diagnosis``             facts and rules → one verdict
``report``                a diagnosis → text, pages, files for other tools
``memory_planner``        what memory a training would take, before it runs: a product of its own
``integrations``          profkit inside IPython, pytest, Lightning, Transformers and TensorBoard
``cli``                   the commands
========================  ============================================================================
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.collect.recorder.diagnosis import diagnose_with
from profkit.core.printing import show_as

if TYPE_CHECKING:
    from profkit.collect.recorder.profiler import profile as profile
    from profkit.diagnosis.compare.comparison import Comparison as Comparison
    from profkit.findings.values import Diagnosis as Diagnosis

__version__ = "0.1.0"
__all__ = ["Comparison", "Diagnosis", "ProfkitError", "__version__", "compare", "diagnose", "load", "profile"]


def diagnose(target: str | Path) -> Diagnosis:
    """Diagnose a recording: a trace of `torch.profiler` (JSON, plain, gzip or zstd), an Nsight Systems export
    (``.sqlite``), a GPU's memory snapshot (``.pickle``), a run directory that profkit made, or a folder with the
    recordings of several ranks of one launch.

    Every rule looks: ``pyproject.toml`` is read by the command line only. Comments ``# profkit: ignore`` in the program
    do count. Nothing is written. Raises `ProfkitError` for anything else, with a message of one line that names the
    file and the cause.
    """
    from profkit.diagnosis.launch.finding import find_ranks
    from profkit.diagnosis.pipeline import diagnose_path

    path = Path(target)
    if path.is_dir() and find_ranks(path):
        from profkit.diagnosis.launch.launching import diagnose_ranks

        return diagnose_ranks(str(path)).diagnosis
    return diagnose_path(path)


def compare(before: str | Path, after: str | Path, *, force: bool = False) -> Comparison:
    """Compare a recording from before a change with one from after it: did the step get longer, and what moved?

    Each side is a trace, a run directory, or a directory of several run directories. Several on each side, recorded in
    turns, tell smaller changes from noise. Raises `ProfkitError` for anything else, for the same recording twice and,
    without ``force``, for recordings of different programs.
    """
    from profkit.diagnosis.compare import compare_paths

    return compare_paths(Path(before), Path(after), force)


def load(path: str | Path) -> Diagnosis:
    """Read a saved diagnosis: a ``diagnosis.json``, or the run directory that holds one.

    Nothing is judged again. Raises `ProfkitError` for anything else.
    """
    from profkit.report.json import load_json, load_run_json

    given = Path(path)
    return load_run_json(given) if given.is_dir() else load_json(given)


def _diagnose_and_write(directory: Path) -> Diagnosis:
    """The diagnosis of a run directory, also written into it if possible."""
    from profkit.core.errors import ProfkitError
    from profkit.report.files import write_reports

    diagnosis = diagnose(directory)
    try:
        write_reports(diagnosis, directory)
    except ProfkitError as error:
        sys.stderr.write(f"profkit: {error}\n")
    return diagnosis


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext profkit``: the cell magic ``%%profkit``."""
    from profkit.integrations.ipython import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext profkit``."""
    from profkit.integrations.ipython import unload

    unload(shell)


def __getattr__(name: str) -> Any:
    """Import what needs torch or NumPy on first use, so that ``import profkit`` costs next to nothing."""
    if name == "profile":
        from profkit.collect.recorder.profiler import profile

        return profile
    if name == "Diagnosis":
        from profkit.findings.values import Diagnosis

        return Diagnosis
    if name == "Comparison":
        from profkit.diagnosis.compare.comparison import Comparison

        return Comparison
    if name == "ProfkitError":
        from profkit.core.errors import ProfkitError

        return ProfkitError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _rendered(output: str, diagnosis: Diagnosis) -> str:
    from profkit.report import render

    return render(diagnosis, output)


def _as_html(diagnosis: Diagnosis) -> str:
    from profkit.report.html.page import render_frame

    return render_frame(diagnosis)


def _compared_as_text(comparison: Comparison) -> str:
    from profkit.report import render_comparison

    return render_comparison(comparison, "text")


# Here, because every import of a value runs this file: an unpickled value prints as its report too.
show_as("Diagnosis", "text", partial(_rendered, "text"))
show_as("Diagnosis", "html", _as_html)
show_as("Diagnosis", "json", partial(_rendered, "json"))
show_as("Comparison", "text", _compared_as_text)
diagnose_with(_diagnose_and_write)
