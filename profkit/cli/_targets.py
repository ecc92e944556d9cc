"""What TARGET means (a scenario, a script, a trace or a directory), and what a shell offers to complete.

Completion must be fast, so the names of rules and scenarios come from their files, and none is imported. Most commands
import this module, so its own imports are inside the functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profkit.core.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

RULE_GROUP = "profkit.rules"
"""`profkit.rules.GROUP`, whose import takes longer than all of completion."""
_RULES = Path(__file__).parents[1] / "rules"
_NO_RULES = ("__init__", "base")
_RUNS = "traces/*/*/run.json"
"""Where `profkit diagnose` leaves its runs."""
TRACE_ENDINGS = (".json", ".gz", ".zst", ".sqlite", ".pickle", ".pkl")
_DEPTHS = ("*/", "*/*/", "*/*/*/")
"""``traces/<target>/<time>`` from ``traces`` and from the target's folder."""


class TargetKind(Enum):
    SCENARIO = "scenario"
    SCRIPT = "script"
    TRACE = "trace"


def classify(target: str) -> TargetKind:
    """The kind of a target, from the file system first, then from its name.

    Raises `UnreadableInput` for a file that does not exist or that profkit cannot read.
    """
    path = Path(target)
    if path.is_dir() or "://" in target:
        return TargetKind.TRACE
    if target.endswith(".py") and not path.exists():
        raise UnreadableInput(path, f"no such script{nearest(path.name, _names_in(path.parent, '*.py'))}")
    if target.endswith(".py") and path.is_file():
        return TargetKind.SCRIPT
    if path.is_file():
        return TargetKind.TRACE
    if path.exists():
        from profkit.core.files.reading import refuse_special_file

        refuse_special_file(path)
    if looks_like_path(target):
        raise UnreadableInput(path, "no such file")
    return TargetKind.SCENARIO


def looks_like_path(target: str) -> bool:
    """Whether this can only be meant as a path, whatever lies there: no scenario's name has a dot or a slash."""
    return "/" in target or "\\" in target or bool(Path(target).suffix)


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'train.py'?``; empty if no known name is similar."""
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _names_in(folder: Path, pattern: str) -> list[str]:
    try:
        return sorted(path.name for path in folder.glob(pattern))
    except OSError:
        return []


def latest_run(path: Path) -> Path:
    """``path``, or the latest run below it if it is a directory of runs."""
    from profkit.core.files.kinds import leads_out
    from profkit.run.directory import RUN_FILE, find_snapshot, find_trace, load_run

    if not path.is_dir() or find_trace(path) is not None or find_snapshot(path) is not None:
        return path
    files = [file for depth in _DEPTHS for file in path.glob(f"{depth}{RUN_FILE}")]
    runs = [file.parent for file in files if not leads_out(file.parent, path)]
    runs = [run for run in runs if find_trace(run) is not None or find_snapshot(run) is not None]
    return max(runs, key=lambda run: (load_run(run).started or "", run), default=path)


def choose_device(device: str, needs_gpu: bool, gpus: int = 1) -> str:
    """``cuda``, ``cpu`` or ``recorded`` for a scenario that takes ``gpus`` on a GPU machine. Raises `UsageError` if
    that is impossible here."""
    if device == "recorded" or (device == "cpu" and not needs_gpu):
        return device
    from profkit.collect.machine.devices import look_for_devices

    present = look_for_devices().gpus
    if device == "cuda" and not present:
        raise UsageError("--device cuda: PyTorch sees no GPU here")
    if device == "cpu":
        raise UsageError("--device cpu: this scenario needs a GPU; leave out --device to use its recording")
    if present >= gpus:
        return "cuda"
    return "recorded" if needs_gpu else "cpu"


def find_recording(scenario: str, variant: str) -> Path:
    """The committed recording of a scenario's variant, the newest if there are several. Raises `UsageError` if there is
    none."""
    from profkit.diagnosis.catalogue import recordings_root
    from profkit.run.directory import load_run

    root = recordings_root()
    found = sorted(root.glob(f"*/{scenario}/{variant}")) if root else []
    if not found:
        raise UsageError(
            f"{scenario}: there is no recording of this scenario ({variant}) on a GPU; "
            f"`profkit record {scenario}` makes one on a machine with a GPU"
        )
    return max(found, key=lambda path: load_run(path).started or "")


def rule_names() -> list[str]:
    """The names of profkit's rules and of other packages'."""
    from importlib.metadata import entry_points

    own = (path.stem.replace("_", "-") for path in _RULES.glob("*.py") if path.stem not in _NO_RULES)
    return sorted({*own, *(entry.name for entry in entry_points(group=RULE_GROUP))})


def complete_rules(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _beginning_with(incomplete, rule_names())


def complete_scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from profkit.diagnosis.catalogue import scenario_names

    return _beginning_with(incomplete, scenario_names())


def complete_recordings(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Runs where profkit leaves them, or else any path."""
    return _or_path(incomplete, _beginning_with(incomplete, _runs()))


def complete_explained(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Rules, and runs where profkit leaves them."""
    return _or_path(incomplete, _beginning_with(incomplete, [*rule_names(), *_runs()]))


def complete_targets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Scenarios, runs, and files in the working directory; if none fits, any path."""
    from profkit.diagnosis.catalogue import scenario_names

    return _or_path(incomplete, _beginning_with(incomplete, [*scenario_names(), *_runs(), *_files()]))


def _or_path(incomplete: str, found: list[CompletionItem]) -> list[CompletionItem]:
    """The found items, or a path: bash completes paths only if nothing else is offered."""
    from click.shell_completion import CompletionItem

    return found or [CompletionItem(incomplete, type="file")]


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    """The names that fit. One with a line break would become two, so it is left out."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in names if name.startswith(incomplete) and name.isprintable()]


def _runs() -> Iterator[str]:
    yield from sorted(path.parent.as_posix() for path in Path().glob(_RUNS))


def _files() -> Iterator[str]:
    """Files in the working directory that can be diagnosed."""
    readable = (".py", *TRACE_ENDINGS)
    yield from sorted(path.name for path in Path().iterdir() if path.name.endswith(readable) and path.is_file())
