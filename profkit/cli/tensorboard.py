"""profkit tensorboard [LOGDIR]"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click


@click.command("tensorboard")
@click.argument("logdir", type=click.Path(path_type=Path), default=Path("traces"))
@click.option("--port", type=click.IntRange(0, 65535), default=6006, show_default=True, help="0 takes a free port.")
@click.option("--copies", type=click.Path(path_type=Path), help="Where the copies go.  [default: a folder in LOGDIR]")
@click.option("--prepare-only", is_flag=True, help="Make the copies and print their directories; serve nothing.")
def command(logdir: Path, port: int, copies: Path | None, prepare_only: bool) -> None:
    """Show the runs below LOGDIR (default: traces) in TensorBoard: reports, and the "PyTorch Profiler" tab.

    The tab "profkit" lists the runs with their verdicts, shows their reports and compares any two. Plain `tensorboard
    --logdir traces` has it too.

    The tab "PyTorch Profiler" (torch-tb-profiler) is no longer developed and misreads the traces of today's PyTorch. So
    it gets rewritten copies, and its step time is that of profkit's reports. The recordings stay unchanged; a copy is
    made again only if its trace changes.

    The tab "Scalars" has each run's step time, the savings of its findings, and its peak memory.

    Only this machine can reach the server (127.0.0.1), and its pages need no internet: plain tables and curves replace
    Google Charts, and the Trace view is profkit's timeline.
    """
    from profkit.core.errors import UsageError
    from profkit.report.tensorboard.copies import PREPARED_FOLDER, prepare_logdir

    prepared = copies or logdir / PREPARED_FOLDER
    runs = prepare_logdir(logdir, prepared, lambda error: _tell(f"left out: {error}"))
    if not runs:
        raise UsageError(f"{logdir}: holds no trace that can be shown (*.pt.trace.json or *.pt.trace.json.gz)")
    if prepare_only:
        for run in runs:
            click.echo(run)
        return
    from profkit.core.units import format_count
    from profkit.integrations.tensorboard.runs import report_address
    from profkit.integrations.tensorboard.tab import ProfkitTab
    from profkit.report.tensorboard.server import serve

    _tell(f"starting TensorBoard with {format_count(len(runs), 'run')} ...")
    serve(prepared, logdir, port, _tell, partial(report_address, str(logdir)), [ProfkitTab(str(logdir))])


def _tell(line: str) -> None:
    click.echo(f"profkit: {line}", err=True)
