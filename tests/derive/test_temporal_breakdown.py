"""The device's time as HolisticTraceAnalysis divides it (0.5.0, ``get_temporal_breakdown``), on its own test traces.
``python -m tests.derive.hta`` prints both for a checkout of HTA.

Both take the union of all streams from the first kernel to the last, and kernels that communicate apart. The expected
shares are those that HTA itself prints with ``include_last_profiler_step=True``. They agree where the file's times are
whole microseconds. Two things differ:

- HTA cuts the times of newer files to whole microseconds, begins up and ends down. Each kernel loses up to 2 µs, and
  what it loses counts as idle.
- HTA leaves out kernels without a launch in the file, as their processes' other threads launched them. Here the device
  works in their time, too.

HTA's idle times (host wait, kernel wait, other) are sums over streams: what computes on one stream idles on all
others. The table of a step divides the time in which no stream works. So the two have no figure in common.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profkit.diagnosis.pipeline import read_facts
from tests.derive.hta import MOST_CUT_NS, compare, shares


@pytest.mark.parametrize(
    ("file", "idle", "computing"),
    [
        ("kineto/recsys_eager_a100.json.gz", 16.36, 60.56),
        ("ranks/sampled_rank-0.json.gz", 55.21, 17.20),
        ("ranks/sampled_rank-1.json.gz", 52.89, 22.09),
    ],
)
def test_the_shares_are_those_of_hta(corpus, file, idle, computing):
    facts = read_facts(corpus / file)
    assert shares(facts, np.ones(len(facts.launches.work), dtype=bool)) == pytest.approx(
        (idle / 100, computing / 100), abs=0.0002
    )


@pytest.mark.parametrize(
    ("file", "idle"),
    [("kineto/ddp_resnet_cpu_bound_a100.json.gz", 76.68), ("kineto/resnet_healthy_v100.pt.trace.json.gz", 2.53)],
)
def test_hta_cuts_kernels_to_whole_microseconds(corpus, file, idle):
    facts = read_facts(corpus / file)
    events, work = facts.trace.events, facts.launches.work
    span_ns = int(events.ends_of(work).max() - events.start_ns[work].min())
    exact, _ = shares(facts, np.ones(len(work), dtype=bool))
    assert exact < idle / 100 <= exact + len(work) * MOST_CUT_NS / span_ns


def test_hta_leaves_out_kernels_without_a_launch(corpus):
    facts = read_facts(corpus / "kineto" / "recsys_graphed_v100.json.gz")
    assert shares(facts, facts.launches.call >= 0) == pytest.approx((0.0694, 0.6912), abs=0.0002)
    assert shares(facts, np.ones(len(facts.launches.work), dtype=bool))[0] == pytest.approx(0.0366, abs=0.0002)


def test_the_command_says_how_the_figures_agree(corpus, tmp_path):
    """Two of HTA's test traces lie in the corpus under other names; the rest is left out."""
    for file, name in (
        ("recsys_eager_a100", "trace_diff/control/control"),
        ("recsys_graphed_v100", "trace_diff/test/test"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / f"{name}.json.gz").symlink_to(corpus / "kineto" / f"{file}.json.gz")
    assert [(Path(name).stem, how) for name, _, _, how in compare(tmp_path)] == [
        ("control.json", "the same"),
        ("test.json", "the same without kernels whose launch is not in the file"),
    ]
