"""In recordings of three steps without step marks, layers are not taken for steps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profkit.diagnosis.pipeline import read_facts

RECORDINGS = Path(__file__).parent / "recordings"
_MARKS = ("ProfilerStep#", "Optimizer.step#")


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("compiled_graph_break/fix", 1),  # three passes through twelve layers
        ("graph_captured_midway/pitfall", 1),
        ("clean_convnet/pitfall", 2),  # from the first start to the third
        ("log_every_tenth_step/pitfall", 2),
        ("no_tf32/pitfall", 2),
    ],
)
def test_layers_are_not_taken_for_steps(tmp_path, name, steps):
    with gzip.open(RECORDINGS / f"{name}.plain.pt.trace.json.gz") as packed:
        trace = json.load(packed)
    events = [event for event in trace["traceEvents"] if not str(event.get("name")).startswith(_MARKS)]
    (tmp_path / "trace.json").write_text(json.dumps({**trace, "traceEvents": events}))
    assert len(read_facts(tmp_path / "trace.json").steps) == steps
