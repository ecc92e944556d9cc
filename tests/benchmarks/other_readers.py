"""What other tools do with a trace, each as a whole process of its own.

    python tests/benchmarks/other_readers.py hta|tensorboard|tracelens TRACE

Runs under a Python that has them: HolisticTraceAnalysis 0.5.0 with pandas below 3, torch-tb-profiler 0.4.3, and what
TraceLens needs, whose source is found by PYTHONPATH.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def hta(trace: Path) -> None:
    """Load, and break down the time and the kernels."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent))
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)


def tensorboard(trace: Path) -> None:
    """Load as the TensorBoard tab does: read, process, analyse."""
    from torch_tb_profiler.profiler.data import RunProfileData

    with tempfile.TemporaryDirectory() as directory:
        RunProfileData.parse("worker", None, str(trace), directory)


def tracelens(trace: Path) -> None:
    """The report of one trace, as tables."""
    from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch

    with tempfile.TemporaryDirectory() as directory:
        generate_perf_report_pytorch(str(trace), output_csvs_dir=directory)


if __name__ == "__main__":
    {"hta": hta, "tensorboard": tensorboard, "tracelens": tracelens}[sys.argv[1]](Path(sys.argv[2]))
