"""What `profkit fix` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profkit.diagnosis.fixing.comparison import Comparison
from profkit.diagnosis.fixing.proving import DONE_TOO, HELD, REFUSED, TRIED, Fixes, Gain, Trial
from profkit.diagnosis.verify import Share
from profkit.findings.values import Finding, Kind, Location, Severity
from profkit.report.trials.fixes import render_fixes

FINDING = Finding("retained-graph", Kind.FAULT, Severity.HIGH, "", 1, 0.9, "", Location("/p/train.py", 7, "main"))
GAIN = Gain(0.0123, 0.0081, Share(0.341, 0.3, 0.382), 4, True, 4e8, 3e8, True)
SAME = Comparison(compared=("2 numbers in standard output",), left_out=("1 number in standard output",))


def test_each_change_has_its_verdict_figures_and_comparison():
    trials = (Trial(FINDING, HELD, "", GAIN, SAME), Trial(FINDING, REFUSED, "the line is not one plain statement"))
    fixes = Fixes(Path("/p"), trials, {}, {}, None, {"input-bound": "no DataLoader"})
    assert render_fixes(fixes, "--- a/train.py\n", "`--write` …") == (
        "1. retained-graph, train.py:7: held: faster, same results\n"
        "   12.3 ms before, 8.10 ms after, a step: 34 % shorter, 95 % interval 30.0 to\n"
        "   38.2 %, 4 pairs of runs; peak memory 400 MB before, 300 MB after\n"
        "   the same: exit status, 2 numbers in standard output\n"
        "   not compared: 1 number in standard output\n"
        "\n"
        "2. retained-graph, train.py:7: refused: the line is not one plain statement\n"
        "\n"
        "not looked: input-bound: no DataLoader\n"
        "\n"
        "1 change of 1 tried held; 2 findings in all.\n"
        "\n"
        "--- a/train.py\n"
        "\n"
        "`--write` …"
    )


def test_what_all_win_together_is_wrapped_as_the_rest_is():
    held = Trial(FINDING, HELD, "", GAIN, SAME)
    text = render_fixes(Fixes(Path("/p"), (held, held), {}, {}, GAIN), "", "")
    assert text.endswith(
        "2 changes of 2 tried held; 2 findings in all.\n"
        "Together: 12.3 ms before, 8.10 ms after, a step: 34 % shorter, 95 % interval\n"
        "   30.0 to 38.2 %, 4 pairs of runs; peak memory 400 MB before, 300 MB after"
    )


def test_a_loss_is_told_as_one():
    slower = Gain(1.0, 1.1, Share(-0.1, -0.15, -0.05), 3, False)
    fixes = Fixes(Path("/p"), (Trial(FINDING, "no gain shown", "it is slower", slower, SAME),), {}, {})
    assert "1.00 s before, 1.10 s after, a run: 10 % longer, 95 % interval 5.0 to 15.0 %" in render_fixes(fixes, "", "")


def test_nothing_found_is_said():
    assert render_fixes(Fixes(Path("/p"), (), {}, {}), "", "") == "No change was tried: nothing was found."


def test_what_was_not_tried_says_what_to_do_instead():
    advised = replace(FINDING, fix="Cut `x.y` off. Or do something else.")
    unsafe = Trial(advised, REFUSED, "gradients end; --unsafe tries it")
    trials = (Trial(advised, REFUSED, "the line is not one plain statement"), unsafe)
    done = tuple(Trial(advised, REFUSED, reason) for reason in (DONE_TOO, TRIED))
    told = render_fixes(Fixes(Path("/p"), done, {}, {}), "", "")
    assert "refused: a change that held does this, too" in told
    assert "by hand" not in told
    text = render_fixes(Fixes(Path("/p"), trials, {}, {}), "", "")
    assert text == (
        "1. retained-graph, train.py:7: refused: the line is not one plain statement\n"
        "   by hand: Cut `x.y` off.\n"
        "\n"
        "2. retained-graph, train.py:7: refused: gradients end; --unsafe tries it\n"
        "\n"
        "No change was tried; 2 findings in all.\n"
        "One more change may alter what the program computes: `--unsafe` tries it, and\n"
        "   says by how much."
    )


def test_a_change_that_holds_says_what_it_is_good_for():
    even = Share(0.0, -0.1, 0.1)
    graphs = Gain(1.0, 1.0, even, 3, True, nodes_before=900, nodes_after=9, frees_graphs=True)
    memory = Gain(1.0, 1.0, even, 3, True, 4e8, 3e8, True)
    for gain, said in ((graphs, "memory no longer grows"), (memory, "less memory"), (GAIN, "faster")):
        text = render_fixes(Fixes(Path("/p"), (Trial(FINDING, HELD, "", gain, SAME),), {}, {}), "", "")
        assert f"held: {said}, same results\n" in text


def test_a_number_stays_with_its_sign_and_a_rule_in_one_piece():
    fixes = Fixes(Path("/p"), (), {}, {}, None, {"input-bound-" + "x" * 50: "it asks 12 % of no repeated-transfer"})
    rows = render_fixes(fixes, "", "").splitlines()
    assert not any(row.lstrip().startswith("%") or row.endswith("-") for row in rows)
