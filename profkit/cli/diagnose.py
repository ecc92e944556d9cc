"""profkit diagnose TARGET"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli._launching import (
    Diagnosed,
    choose_measure,
    diagnose_launch,
    holds_launch,
    launch_of,
    names_recording,
    run,
)
from profkit.cli._output import Delivery, open_page, print_report, say, say_where, sharing_options, write
from profkit.cli._recording import (
    PROGRAMS_ONLY,
    RecordedProgram,
    arguments_of_module,
    fail_as,
    program_arguments,
    recording_options,
    refuse_wishes,
    run_directory_option,
)
from profkit.cli._settings import exit_if_failing, settings_options
from profkit.cli._targets import TargetKind, choose_device, classify, find_recording, latest_run
from profkit.core.errors import UsageError
from profkit.report import FORMATS, TRACE_COPY

if TYPE_CHECKING:
    from profkit.derive.facts import Facts
    from profkit.diagnosis.fixing.larger_batches import BatchTrials
    from profkit.diagnosis.settings import Settings
    from profkit.findings.values import Diagnosis
    from profkit.trace.cache import Origin


@click.command("diagnose", context_settings={"ignore_unknown_options": False})
@program_arguments
@run_directory_option
@click.option(
    "--format",
    "format_name",
    default="text",
    show_default=True,
    type=click.Choice([*FORMATS, TRACE_COPY]),
    help="What to print; perfetto writes a file and prints its path.",
)
@sharing_options
@click.option(
    "--path-map",
    "path_maps",
    multiple=True,
    metavar="OLD=NEW",
    help="Files below OLD in the recording are below NEW here; may be repeated.",
)
@click.option(
    "--card",
    default="",
    metavar="NAME",
    help="The device of a recording, where that does not name it: 'AMD Instinct MI300X'.",
)
@click.option("--verbose", is_flag=True, help="Say why some rules could not look.")
@click.option("--open", "opened", is_flag=True, help="Open the page in the default browser.")
@click.option(
    "--variant",
    default="pitfall",
    show_default=True,
    type=click.Choice(["pitfall", "fix"]),
    help="Which variant of a scenario to run.",
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "cpu", "cuda", "recorded"]),
    help="Where a scenario runs; auto: on a GPU if there is one.",
)
@recording_options
@click.option(
    "--on", metavar="ray[://HOST:PORT]", help="Let the machines of a Ray cluster read the recordings of a launch."
)
@click.option(
    "--measure", is_flag=True, help="Price findings by experiments on this machine where possible; takes seconds."
)
@click.option("--try-batch", is_flag=True, help="First run a script with larger batches, in copies of its folder.")
@click.option(
    "--link",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="With --try-batch: do not copy this, the program only reads it. May be repeated.",
)
@settings_options
def command(  # noqa: PLR0913, PLR0917  # click passes each option by its name
    target: str | None,
    arguments: tuple[str, ...],
    module: str | None,
    output: Path | None,
    format_name: str,
    variant: str,
    device: str,
    on: str | None,
    measure: bool,
    settings: Settings,
    **wishes: Any,
) -> None:
    """Say what to change in TARGET, on which line, and what it saves.

    TARGET is a scenario (see `profkit scenarios`), a script.py, a trace (*.json, plain, gzip or zstd), an Nsight
    Systems export (*.sqlite), a GPU memory snapshot (*.pickle), a run directory, or a folder with the recordings of
    several ranks, also on another file system (s3://…). Arguments for a script go after --. diagnosis.json and
    report.html are written to the run directory; the report goes to stdout.

    \b
    profkit diagnose loss-list
    profkit diagnose train.py -- --epochs 1
    profkit diagnose -m package.train
    profkit diagnose --nproc 4 train.py
    profkit diagnose trace.json.gz
    profkit diagnose folder-of-ranks
    """
    settings = _on_card(settings, wishes.pop("card"))
    wished = _wished(format_name, Path() if module is not None else Path(target or ""), settings, wishes)
    if module is not None:
        recorded = _run(module, arguments_of_module(target, arguments), output, True, **wishes)
        return _finish_program(*recorded, measure, wished, settings)
    if target is None:
        raise UsageError("give a scenario, a script.py, a trace or a directory (see `profkit diagnose --help`)")
    kind = classify(target)
    if kind is TargetKind.SCRIPT:
        return _finish_program(*_run(target, arguments, output, False, **wishes), measure, wished, settings)
    _refuse_trials(kind.value, arguments, wishes)
    refuse_wishes(f"a {kind.value}", **{name: wishes.pop(name) for name in PROGRAMS_ONLY})
    if kind is TargetKind.SCENARIO:
        found = _run_scenario(target, variant, device, output, wishes, measure, settings)
        return _finish(*found, wished, settings)
    return _finish(*_read_target(target, on, output, measure, settings), wished, settings)


def _on_card(settings: Settings, card: str) -> Settings:
    """The settings with the device that the user names. Raises `UsageError` if no data sheet is known for it."""
    if not card:
        return settings
    from profkit.diagnosis.rooflines import check_card

    check_card(card)
    return replace(settings, card=card)


def _wished(format_name: str, around: Path, settings: Settings, wishes: dict[str, Any]) -> Delivery:
    """How to deliver the report; takes these options out of ``wishes``."""
    from profkit.report.sharing.checkout import parse_path_map

    shared, without_source, opened, verbose = map(wishes.pop, ("share", "no_source", "opened", "verbose"))
    path_maps = tuple(map(parse_path_map, wishes.pop("path_maps")))
    if format_name == TRACE_COPY and (shared or without_source):
        raise UsageError("--format perfetto copies the trace, which --share and --no-source do not change")
    return Delivery(format_name, shared, without_source, opened, around, settings.editor, path_maps, verbose)


def _read_target(
    target: str, on: str | None, output: Path | None, measure: bool, settings: Settings
) -> tuple[Diagnosed, Path]:
    """Diagnose a recording, a launch, or the latest run in a directory."""
    if on is None and names_recording(target):
        return _read_elsewhere(target, output, measure, settings)
    if on is not None or holds_launch(target):
        return diagnose_launch(target, on, output, measure, settings)
    path = latest_run(Path(target))
    if path == Path(target):
        return _read(path, output, measure, settings)
    launch = launch_of(path)
    click.echo(f"profkit: {target}: taking its latest run, {launch}", err=True)
    if launch != path:
        return diagnose_launch(str(launch), None, output, measure, settings)
    return _read(path, output, measure, settings)


def _read_elsewhere(target: str, output: Path | None, measure: bool, settings: Settings) -> tuple[Diagnosed, Path]:
    """Diagnose a recording by its address, from a temporary copy."""
    from profkit.diagnosis.launch.remote import path_of, within_reach
    from profkit.run.directory import default_directory

    with within_reach(target) as reached:
        directory = output or default_directory(target)
        found, directory = _read(reached.path, directory, measure, settings, reached.origin)
    return found if path_of(target) is not None else replace(found, path=None), directory


def _diagnose(path: Path, measure: bool, settings: Settings) -> Diagnosed:
    from profkit.diagnosis.pipeline import read_facts

    return _judge(path, read_facts(path, card=settings.card), measure, settings)


def _judge(path: Path, facts: Facts, measure: bool, settings: Settings) -> Diagnosed:
    from profkit.diagnosis.pipeline import diagnose_with_rows

    return Diagnosed(path, facts, *diagnose_with_rows(facts, choose_measure(measure), settings))


def _read(
    path: Path, output: Path | None, measure: bool, settings: Settings, origin: Origin | None = None
) -> tuple[Diagnosed, Path]:
    """Diagnose a recording, then make the directory, so that an unreadable file leaves nothing behind. But check first
    that the result can be written, as reading may take minutes. ``origin`` is what the recording is a copy of."""
    from profkit.cli._progress import ReadingBar
    from profkit.core.memory_reuse import reuse_memory_for_columns, reuse_memory_for_rules, stop_collecting_garbage

    stop_collecting_garbage()
    reuse_memory_for_columns()
    from profkit.diagnosis.pipeline import read_facts
    from profkit.run.directory import REPORTS, check_replaceable, create_directory, default_directory, refuse_other_run

    in_place = path.is_dir() and output is None
    if in_place:
        check_replaceable(path, REPORTS)
    elif output is not None:
        refuse_other_run(output)
    with ReadingBar(path) as bar:
        facts = read_facts(path, bar.show, origin=origin, card=settings.card)
    reuse_memory_for_rules()
    diagnosed = _judge(path, facts, measure, settings)
    directory = path if in_place else create_directory(output or default_directory(str(path)))
    return diagnosed, directory


def _run_scenario(
    name: str,
    variant: str,
    device: str,
    output: Path | None,
    plan: dict[str, int],
    measure: bool,
    settings: Settings,
) -> tuple[Diagnosed, Path]:
    from profkit.diagnosis.catalogue import find_scenario
    from profkit.run.directory import create_directory, default_directory

    scenario = find_scenario(name)
    chosen = choose_device(device, scenario.needs_gpu, scenario.gpus)
    if chosen == "recorded":
        recording = find_recording(name, variant)
        needing = f"{name} needs a GPU" if scenario.needs_gpu else name
        click.echo(f"profkit: {needing}: showing a recording made elsewhere ({recording})", err=True)
        return _diagnose(recording, measure, settings), create_directory(output or default_directory(name))
    from profkit.cli._progress import Progress
    from profkit.collect.launch.scenario import run_scenario

    directory = create_directory(output or default_directory(name))
    with Progress() as progress:
        run_scenario(scenario.path, variant, chosen, directory, on_progress=progress.show, **plan)
    return _diagnose(directory, measure, settings), directory


def _refuse_trials(what: str, arguments: tuple[str, ...], wishes: dict[str, Any]) -> None:
    """Raise `UsageError` for arguments and for the options of trials, and take these out of ``wishes``."""
    if arguments:
        raise UsageError(f"{arguments[0]}: only a script or a module takes arguments")
    for name in ("try_batch", "link"):
        if wishes.pop(name):
            raise UsageError(f"--{name.replace('_', '-')}: not for a {what}, only for a script or a module")


def _run(
    target: str,
    arguments: tuple[str, ...],
    output: Path | None,
    module: bool,
    *,
    try_batch: bool,
    link: tuple[Path, ...],
    **wishes: Any,
) -> tuple[RecordedProgram, BatchTrials | None]:
    """Record a program, and try larger batches if asked to: first, so that no trial resumes a checkpoint of the
    recording."""
    if link and not try_batch:
        raise UsageError("--link: only with --try-batch, which copies the program's folder")
    if try_batch and wishes["nproc"] is not None:
        raise UsageError("--try-batch: not with --nproc, as a trial is a single process")
    tried = None
    if try_batch:
        from profkit.cli._copies import try_larger_batches

        tried = try_larger_batches(target, arguments, module, link)
    return run(target, arguments, output, module, **wishes), tried


def _tell_batches(tried: BatchTrials, found: Diagnosed, wished: Delivery) -> None:
    """Print what larger batches gave beside the prediction, on stderr if stdout is for a program to read."""
    from profkit.report.trials.larger_batches import render_larger_batches
    from profkit.savings.larger_batch import larger_batch

    guess = None if found.facts is None or not found.facts.has_trace else larger_batch(found.facts)
    predicted = {} if guess is None else {trial.times: guess.gain(trial.times) for trial in tried.trials[1:]}
    text = render_larger_batches(tried, predicted)
    if wished.format_name == "text":
        say(f"\n{text}")
    else:
        click.echo(text, err=True)


def _finish_program(
    recorded: RecordedProgram, tried: BatchTrials | None, measure: bool, wished: Delivery, settings: Settings
) -> None:
    """Diagnose a program, and each further window recorded while it ran; print the first recording's report."""
    from profkit.core.memory_reuse import collecting_later

    first, *windows = recorded.directories
    if recorded.is_launch:
        windows, diagnosed = [], [diagnose_launch(str(first), None, None, measure, settings)[0]]
    else:
        with collecting_later():
            diagnosed = [_diagnose(first, measure, settings)]
    _deliver(diagnosed[0], first, wished, settings)
    if tried is not None:
        _tell_batches(tried, diagnosed[0], wished)
    for window in windows:
        diagnosed.append(_diagnose(window, measure, settings))
        write(diagnosed[-1].diagnosis, window, wished)
        say_where(window)
    if recorded.status:
        fail_as(recorded.status, recorded.remedy, recorded.is_rank)
    exit_if_failing([one.diagnosis for one in diagnosed], settings)


def _finish(found: Diagnosed, directory: Path, wished: Delivery, settings: Settings) -> None:
    """Deliver the report, and exit with status 1 if a finding fails the command."""
    _deliver(found, directory, wished, settings)
    exit_if_failing([found.diagnosis], settings)


def _deliver(found: Diagnosed, directory: Path, wished: Delivery, settings: Settings) -> None:
    """Write the files, print the report, and open the page if asked to."""
    from profkit.report.sharing.checkout import map_paths

    shown = write(map_paths(_with_origin(found), wished.path_maps), directory, wished)
    if wished.format_name == TRACE_COPY:
        click.echo(_write_copy(found, directory))
    else:
        print_report(shown, wished.format_name, settings, wished.verbose)
    say_where(directory)
    if wished.opened:
        open_page(directory)


def _with_origin(found: Diagnosed) -> Diagnosis:
    """The diagnosis, which says where a recording lies that is a file: reports lie elsewhere, and `profkit compare`
    finds it by them."""
    from profkit.run.directory import RECORDING

    if found.path is None or not found.path.is_file():
        return found.diagnosis
    run = found.diagnosis.run
    return replace(found.diagnosis, run=replace(run, files={**run.files, RECORDING: str(found.path.absolute())}))


def _write_copy(found: Diagnosed, directory: Path) -> Path:
    """Write a copy of the trace for Perfetto, with the findings in it, and return its path."""
    from profkit.report.perfetto import PERFETTO_FILE, write_perfetto
    from profkit.run.directory import find_trace

    if found.path is None or found.facts is None:
        raise UsageError("--format perfetto copies a trace on this machine, and this one is elsewhere")
    source = find_trace(found.path) if found.path.is_dir() else found.path
    if source is None or not found.facts.has_trace:
        raise UsageError(f"--format perfetto copies a trace, and {found.path} is only a memory snapshot")
    target = directory / PERFETTO_FILE
    write_perfetto(found.diagnosis, found.facts.trace, found.rows, source, target)
    return target
