"""What profkit changes in programs and says so: one row for each, with the page and the sentence that state it.

Everything else that differs is a defect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.beside.comparing import Difference
from tests.beside.modes import MODES

_LAUNCHED = ("record", "diagnose")
"""Where the program runs in a process of profkit's."""


@dataclass(frozen=True)
class Documented:
    programs: tuple[str, ...]
    """The programs that show it."""
    kind: str
    text: str
    """A pattern for the difference."""
    page: str
    says: str
    """A part of a sentence of that page."""
    modes: tuple[str, ...] = MODES


_STACKS = "profkit's frames below the program's"
_ONE_MORE_FRAME = "Stacks that PyTorch shows there hold a frame of profkit's"
_NOTHING = "If nothing can be recorded, the program runs as without profkit"

DOCUMENTED: tuple[Documented, ...] = (
    Documented(
        (
            "changes_root",
            "closes_all_descriptors",
            "drops_privileges",
            "few_descriptors",
            "limited_files",
            "named_like_ours",
            "no_torch",
            "refusing_open",
            "run_directory_full",
            "run_directory_removed",
            "takes_all_descriptors",
        ),
        "status",
        "^0 became 2$",
        "programs.md",
        _NOTHING,
        _LAUNCHED,
    ),
    Documented(("anomaly_mode",), "stderr", "line ", "programs.md", _STACKS, _LAUNCHED),
    Documented(("anomaly_mode",), "stderr", "line ", "programs.md", _ONE_MORE_FRAME),
    Documented(("call_stack",), "stdout", "line ", "programs.md", _STACKS, _LAUNCHED),
    Documented(("call_stack_in_hooks",), "stdout", "line ", "programs.md", _ONE_MORE_FRAME),
    Documented(
        ("hooks_on_everything",), "stderr", "profkit/.*Warning|result = function", "programs.md", _ONE_MORE_FRAME
    ),
    Documented(("classes_counted",), "stdout", "CallWatch|ProfkitError", "programs.md", "its modules and classes"),
    Documented(
        ("changes_root", "few_descriptors"), "stderr", "process name", "programs.md", "if it cannot read `/proc`"
    ),
    Documented(
        ("torch_imported_in_a_thread",), "stderr", "must run in same thread", "programs.md", "must run in same thread"
    ),
    Documented(
        ("gc_callbacks",), "stdout", r"'\d+ 0 1 0' became '\d+ 0 [23] 0'", "programs.md", "an entry in `gc.callbacks`"
    ),
    Documented(("lengths_of_memory",), "stdout", "collect/", "programs.md", "profkit's objects in counts and lists"),
    Documented(("named_like_ours",), "stdout", "not mine", "programs.md", "is taken for that library"),
    Documented(
        ("own_finders", "torch_imported_late", "what_imports_show"),
        "stdout",
        "ImportWatch|'0' became '-1'",
        "programs.md",
        "a finder until torch is imported",
        _LAUNCHED,
    ),
    Documented(
        ("own_import_function", "patched_open", "patched_standard_library"),
        "stdout",
        "line ",
        "programs.md",
        "profkit calls what the program puts in place of functions of `builtins`",
    ),
    Documented(
        ("sigusr1_default",), "status", "-10 became 0", "programs.md", "`kill -USR1 PID` records another window"
    ),
    Documented(("sigusr1_default",), "stdout", "'after'", "programs.md", "`kill -USR1 PID` records another window"),
    Documented(("what_descriptors_show",), "stdout", "line ", "programs.md", "one or two while it records"),
    Documented(("what_modules_show",), "stdout", "line 1: ", "programs.md", "its modules and classes"),
    Documented(
        ("partial_lines",), "stderr", "Written to", "programs.md", "even if that is no whole line", ("diagnose",)
    ),
    Documented(
        ("trains_in_hooks",),
        "files",
        r"home/\.cache",
        "traces.md",
        "Decoded columns are cached in `~/.cache/profkit/columns`",
        ("diagnose",),
    ),
    Documented(("what_patches_show",), "stdout", "'0 0' became '0 1'", "programs.md", "one global optimizer hook"),
    Documented(
        ("what_the_process_shows",),
        "stdout",
        "True True",
        "programs.md",
        "the program is a child of profkit's",
        _LAUNCHED,
    ),
    Documented(("what_threads_show",), "stdout", "profkit-sampler", "programs.md", "its thread `profkit-sampler`"),
    Documented(
        ("what_tracers_show",),
        "stdout",
        "'True 0.005 ",
        "programs.md",
        "The recursion limit is raised by those frames",
        _LAUNCHED,
    ),
    Documented(("what_tracers_show",), "stdout", r"\['method'\]", "programs.md", "an entry in `gc.callbacks`"),
    Documented(
        ("what_tracers_show",), "stdout", "'False True' became 'True True'", "programs.md", "it is on in recorded steps"
    ),
    Documented(
        ("own_finders",), "stdout", "profkit.collect", "programs.md", "and its imports pass the program's finders"
    ),
)


def why(program: str, mode: str, difference: Difference) -> str:
    """The page that states the difference; empty if none does."""
    for row in DOCUMENTED:
        is_here = program in row.programs and mode in row.modes
        if is_here and difference.kind == row.kind and re.search(row.text, difference.text):
            return row.page
    return ""
