"""``python -m tests.derive.hta DATA``: the device's time as profkit divides it beside HolisticTraceAnalysis' figures.

``DATA`` is ``tests/data`` of a checkout of HolisticTraceAnalysis; files that it lacks are left out. The figures are
what HTA 0.5.0 prints (``get_temporal_breakdown``, with ``include_last_profiler_step=True``), and for the two of
``vision_transformer`` what HTA's own test expects. `tests.derive.test_temporal_breakdown` says what differs and why:
times cut to whole microseconds, and kernels without a launch. HTA's own test of idle times expects 71 % ``host_wait``
of one stream, a sum that no table of the whole device contains. Its traces of MTIA hold no device that profkit reads,
and HTA 0.5.0 does not read ``df_index_resolver``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from profkit.derive.facts import Facts
from profkit.derive.timeline.intervals import union
from profkit.diagnosis.pipeline import read_facts
from profkit.trace.events import Bools, Category

MOST_CUT_NS = 2_000
"""HTA cuts a kernel's times to whole microseconds, its begin up and its end down."""
_ROUNDED = 0.02
"""Per cent: HTA prints two decimals."""
TOLD = {
    "vision_transformer/rank-0.json.gz": (100 * 552_069 / 2_033_570, 100 * 596_651 / 2_033_570),
    "vision_transformer/rank-1.json.gz": (100 * 431_771 / 2_032_757, 100 * 596_759 / 2_032_757),
    "trace_filter/sampled_rank-0.json.gz": (55.21, 17.20),
    "trace_filter/sampled_rank-1.json.gz": (52.89, 22.09),
    "trace_diff/control/control.json.gz": (16.36, 60.56),
    "trace_diff/test/test.json.gz": (6.94, 69.12),
    "negative_queue_length_values_check/rank0.json.gz": (69.01, 14.62),
    "nccl_parser_config/nccl_data.json.gz": (76.68, 17.11),
    "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (2.53, 96.85),
    "amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": (98.53, 1.08),
}
"""Per cent of the time from the first kernel to the last that are idle and that compute."""


def shares(facts: Facts, chosen: Bools) -> tuple[float, float]:
    """The shares of the time, from the first of the chosen work to the last, that are idle and that compute."""
    events, work, own = facts.trace.events, facts.launches.work[chosen], facts.device.collective[chosen]
    busy = union(events.start_ns[work], events.ends_of(work))
    span_ns = int(busy.end_ns[-1] - busy.start_ns[0])
    kernels = work[~own & (events.category[work] == Category.KERNEL)]
    return 1 - busy.total_ns / span_ns, union(events.start_ns[kernels], events.ends_of(kernels)).total_ns / span_ns


def compare(data: Path) -> Iterator[tuple[str, tuple[float, float], tuple[float, float], str]]:
    """For each file that is there its name, HTA's figures, profkit's, and how they agree."""
    for name, told in TOLD.items():
        if (data / name).is_file():
            found, how = _judge(read_facts(data / name), told)
            yield name, told, found, how


def _judge(facts: Facts, told: tuple[float, float]) -> tuple[tuple[float, float], str]:
    work, events = facts.launches.work, facts.trace.events
    for chosen, how in (
        (np.ones(len(work), dtype=bool), "the same"),
        (facts.launches.call >= 0, "the same without kernels whose launch is not in the file"),
    ):
        idle, computing = (100 * share for share in shares(facts, chosen))
        if max(abs(idle - told[0]), abs(computing - told[1])) <= _ROUNDED:
            return (idle, computing), how
    idle, computing = (100 * share for share in shares(facts, np.ones(len(work), dtype=bool)))
    cut = 100 * len(work) * MOST_CUT_NS / int(events.ends_of(work).max() - events.start_ns[work].min())
    within = -_ROUNDED <= told[0] - idle <= cut and -_ROUNDED <= computing - told[1] <= cut
    return (idle, computing), "the same but for times cut to whole microseconds" if within else "NOT the same"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("idle and computing by HTA, and by profkit, in per cent of the time from the first kernel to the last")
    for name, told, found, how in compare(Path(sys.argv[1])):
        print(f"{told[0]:6.2f} {told[1]:6.2f}  {found[0]:6.2f} {found[1]:6.2f}  {name}: {how}")


if __name__ == "__main__":
    main()
