"""Whether several faults mended at once give back what profkit predicts for all of them together.

    python tests/benchmarks/bench_several_faults.py [NAME ...]

Each program under ``several_faults`` has two faults and a variant without. Printed are the predicted total, the sum
of the single predictions, and the measured share of the step, with both variants run by turns and no profiler.
"""

from __future__ import annotations

import sys
from pathlib import Path

from profkit.diagnosis.catalogue import read_scenario
from profkit.diagnosis.verify import diagnose_variant, effect_of, measure

PROGRAMS = Path(__file__).with_name("several_faults")


def main(names: list[str]) -> None:
    print(f"{'program':22}{'faults':>8}{'sum':>8}{'total':>8}{'measured':>10}{'off by':>8}")
    for path in sorted(PROGRAMS.glob("*.py")):
        if names and path.stem not in names:
            continue
        scenario = read_scenario(path)
        diagnosis = diagnose_variant(scenario, "pitfall", "cpu")
        found = [finding for finding in diagnosis.findings if finding.rule in scenario.triggers and finding.saving]
        total = diagnosis.total.fraction if diagnosis.total else max((f.saving.fraction for f in found), default=0.0)
        measured = effect_of(measure(scenario, "cpu", "time").ns)
        added = sum(finding.saving.fraction for finding in found)
        figures = (added, total, measured.fraction, abs(total - measured.fraction))
        shares = [f"{100 * figure:.0f} %" for figure in figures]
        print(f"{path.stem:22}{len(found):8}{shares[0]:>8}{shares[1]:>8}{shares[2]:>10}{shares[3]:>8}")


if __name__ == "__main__":
    main(sys.argv[1:])
