"""How long one replay of the recorded steps takes on a large trace.

    python tests/benchmarks/bench_replay.py TRACE [MEGABYTES] [RUNS]

TRACE is repeated in time up to MEGABYTES of uncompressed JSON (default 200), read once, and replayed RUNS times
(default 5) without an edit and with every wait of the host taken away. Printed are the median times, the dependency
graph included, and how far the replay without an edit is from the recorded time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from repeat_trace import repeat

from profkit.diagnosis.pipeline import read_facts
from profkit.savings.edits import Edit, unblock
from profkit.savings.replay import replay


def main(source: Path, megabytes: float = 200, runs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "large.json.gz"
        repeat(source, trace, int(megabytes * 1e6))
        facts = read_facts(trace)
    waits = facts.waits.rows
    replay(facts, Edit())  # derives the facts that all replays share
    print(f"{source.name} repeated to {megabytes:.0f} MB: {len(facts.trace.events):,} events, {len(waits):,} waits")
    for label, make in (("without an edit", Edit), ("without its waits", partial(unblock, waits))):
        times = []
        for _ in range(runs):
            edit = make()  # a replay is kept with its edit
            start = time.perf_counter()
            result = replay(facts, edit)
            times.append(time.perf_counter() - start)
        share = result.edited_ns / max(result.recorded_ns, 1)
        print(f"{label:18} median {statistics.median(times):.3f} s, {100 * share:.2f} % of the recorded time")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(float(sys.argv[2]),) if len(sys.argv) > 2 else (), *map(int, sys.argv[3:]))
