"""What profkit says about recordings from an H100 agrees with the measurements made there."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.findings.values import Location
from tests.h100.sums import Part, Pitfalls, is_step_covered, is_step_near_blocks, is_step_right, is_surprise, sum_up
from tests.h100.survey import (
    FIX,
    PITFALL,
    PLAIN,
    PROGRAMS,
    RUN,
    SCRIPTS,
    Recording,
    Row,
    Sought,
    is_at,
    survey,
)
from tests.h100.table import render

RECORDINGS = Path(__file__).parent / "recordings"

Rows = dict[tuple[str, str, str], Row]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return {(row.recording.program, row.recording.variant, row.recording.form): row for row in survey(RECORDINGS)}


def test_every_recording_is_diagnosed(rows):
    assert len(rows) == 31
    assert {key: row.error for key, row in rows.items() if row.error is not None} == {}


@pytest.mark.parametrize(
    ("program", "variant", "form"),
    [
        ("attention_by_hand", PITFALL, RUN),
        ("attention_by_hand", PITFALL, PLAIN),
        ("attention_by_hand", FIX, RUN),
        ("clean_convnet", PITFALL, RUN),
        ("clean_convnet", PITFALL, PLAIN),
        ("conv_nchw_bf16", PITFALL, PLAIN),
        ("empty_cache", FIX, PLAIN),
        ("launch_bound_small_batch", FIX, RUN),
        ("launch_bound_small_batch", FIX, PLAIN),
        ("log_every_tenth_step", PITFALL, RUN),
        ("log_every_tenth_step", PITFALL, PLAIN),
        ("many_small_copies", FIX, RUN),
        ("no_tf32", PITFALL, RUN),
        ("no_tf32", PITFALL, PLAIN),
        ("no_tf32", FIX, RUN),
        ("no_tf32", FIX, PLAIN),
    ],
)
def test_the_step_time_of_a_gpu_bound_program_matches_the_measured_one(rows, program, variant, form):
    row = rows[program, variant, form]
    assert row.is_gpu_bound
    assert row.bound_by == "device"
    assert row.step_ms == pytest.approx(row.measured_ms, rel=0.1)


@pytest.mark.parametrize("program", ["clean_convnet", "graph_captured_midway", "log_every_tenth_step"])
@pytest.mark.parametrize("form", [RUN, PLAIN])
def test_a_clean_program_has_no_serious_findings(rows, program, form):
    assert rows[program, PITFALL, form].clean
    assert rows[program, PITFALL, form].grave == ()


@pytest.mark.parametrize(
    ("program", "form"),
    [
        ("attention_by_hand", RUN),
        ("attention_by_hand", PLAIN),
        ("conv_nchw_bf16", PLAIN),
        ("no_tf32", RUN),
        ("no_tf32", PLAIN),
    ],
)
def test_the_fault_comes_first_on_its_line_and_its_saving_covers_the_measured_one(rows, program, form):
    sought = rows[program, PITFALL, form].sought
    assert (sought.found, sought.rank) == (True, 1)
    assert (sought.line, sought.function) == ((True, None) if form == RUN else (None, True))
    assert sought.is_covered
    assert sought.error < 0.3


@pytest.mark.parametrize("name", ["attention_by_hand", "conv_nchw_bf16", "no_tf32"])
def test_a_recording_by_profkit_and_a_plain_one_give_the_same_saving(rows, name):
    priced = [row.sought.predicted for (program, _, _), row in rows.items() if program == name and row.sought]
    assert max(priced) - min(priced) <= 0.02


def test_the_table_names_every_recording_in_a_stable_order(rows):
    table = render(list(rows.values()))
    assert table.splitlines()[2].startswith("attention_by_hand pitfall run ")
    assert table.index("no_tf32 pitfall plain") < table.index("no_tf32 fix run") < table.index("sync_every_layer")
    assert "diagnosed: 31 of 31" in table


PROGRAM = RECORDINGS / "programs" / "no_tf32.py"  # its marked line, 15, lies in `pitfall`


@pytest.mark.parametrize(
    ("location", "is_there"),
    [
        (Location("/home/user/no_tf32.py", 15, "pitfall"), True),
        (Location("/home/user/no_tf32.py", 16, "pitfall"), False),
        (Location("/home/user/other.py", 15, "pitfall"), False),
        (Location("/home/user/no_tf32.py", 12, "pitfall", precision="def"), True),
        (Location("/home/user/no_tf32.py", 15, "fix", precision="def"), False),
        (None, False),
    ],
)
def test_a_place_is_compared_by_line_or_without_a_line_by_function(location, is_there):
    assert is_at(location, PROGRAM, [15]) is is_there


@pytest.mark.parametrize(("function", "is_there"), [("step", True), ("formula", True), ("other", False)])
def test_a_function_is_right_if_it_contains_or_is_called_on_the_marked_line(tmp_path, function, is_there):
    program = tmp_path / "chain.py"
    program.write_text("def formula(): 0\ndef other(): 0\ndef step():\n    formula()\n    other()\n")
    assert is_at(Location("chain.py", 1, function, precision="def"), program, [4]) is is_there


def row(step_ms: float, busy_ms: float, name: str = "a", form: str = PLAIN, **known: object) -> Row:
    """A recording of a program with steps of 10 ms."""
    clean = known.pop("clean", False)
    recording = Recording(PROGRAMS, name, PITFALL, form, Path(name))
    return Row(recording, 10.0, clean, step_ms=step_ms, busy_ms=busy_ms, **known)


@pytest.mark.parametrize(("step_ms", "right"), [(9.01, True), (10.99, True), (8.99, False), (11.01, False)])
def test_a_step_is_right_within_a_tenth(step_ms, right):
    assert is_step_right(row(step_ms, 1.0)) is right


@pytest.mark.parametrize(
    ("step_ms", "least_ms", "most_ms", "covered"),
    [
        (15.0, None, None, False),
        (15.0, 11.01, 20.0, False),
        (15.0, 10.99, 20.0, True),
        (9.01, 5.0, None, True),
        (8.99, 5.0, None, False),
        (5.0, 3.0, 8.99, False),
        (5.0, 3.0, 9.01, True),
    ],
)
def test_a_step_is_covered_within_a_tenth_of_the_stated_range(step_ms, least_ms, most_ms, covered):
    assert is_step_covered(row(step_ms, 1.0, least_ms=least_ms, most_ms=most_ms)) is covered


@pytest.mark.parametrize(
    ("step_ms", "blocks_ms", "near"),
    [
        (15.9, (9.0, 13.3), True),
        (16.0, (9.0, 13.3), False),
        (7.3, (9.0, 13.3), True),
        (7.1, (9.0, 13.3), False),
        (11.9, None, True),
        (12.1, None, False),
    ],
)
def test_a_step_is_near_the_measured_blocks_within_a_fifth_of_their_range(step_ms, blocks_ms, near):
    assert is_step_near_blocks(row(step_ms, 1.0, blocks_ms=blocks_ms)) is near


def test_a_program_is_gpu_bound_from_nine_tenths_of_the_measured_step():
    assert row(10.0, 9.0).is_gpu_bound
    assert not row(10.0, 8.99).is_gpu_bound


def sought(predicted: float, low: float, high: float, rank: int = 1) -> Sought:
    return Sought("rule", True, 0.5, True, rank, "a.py:1", line=True, predicted=predicted, low=low, high=high)


@pytest.mark.parametrize(
    ("one", "surprise"),
    [
        (sought(0.19, 0.1, 0.3), True),
        (sought(0.21, 0.1, 0.3), False),  # off by less than 30 %
        (sought(0.19, 0.1, 0.5), False),  # the interval says so
        (Sought("rule", True, 0.5), False),  # not found at all
    ],
)
def test_a_surprise_is_a_large_error_outside_the_stated_interval(one, surprise):
    assert is_surprise(one) is surprise


@pytest.mark.parametrize(
    ("predicted", "measured", "correlation"),
    [
        ((0.1, 0.2, 0.9), (0.3, 0.4, 0.5), 1.0),
        ((0.1, 0.2, 0.9), (0.5, 0.4, 0.3), -1.0),
        ((0.1, 0.9), (0.1, 0.9), None),
        ((0.1, 0.1, 0.9), (0.2, 0.3, 0.4), 0.866),
    ],
    ids=["in order", "in reverse", "two", "a tie"],
)
def test_predictions_are_compared_with_the_order_of_the_measurements(predicted, measured, correlation):
    found = [Sought("rule", True, true, predicted=one) for one, true in zip(predicted, measured, strict=True)]
    correlated = sum_up([row(1.0, 1.0, str(n), sought=one) for n, one in enumerate(found)]).rank_correlation
    assert correlated == (None if correlation is None else pytest.approx(correlation, abs=1e-3))


def test_the_sums_distinguish_existing_rules_from_missing_ones():
    rows = [
        row(10.0, 9.5, "a", sought=sought(0.4, 0.3, 0.5)),
        row(20.0, 9.5, "b", sought=sought(0.1, 0.0, 0.2, rank=3), grave=("rule",)),
        row(20.0, 1.0, "c", sought=Sought("missing-rule", False, 0.9)),
        row(10.0, 1.0, "d", RUN, clean=True, grave=("launch-bound",)),
        Row(Recording(SCRIPTS, "clean_script", "", RUN, Path("e")), None, True, error="ValueError: broken"),
    ]
    sums = sum_up(rows)
    assert sums.diagnosed == Part(4, 5)
    assert sums.gpu_bound_plain_within == Part(1, 2)
    assert sums.plain_within == Part(1, 3)
    assert sums.run_within == Part(1, 1)
    assert sums.with_rule == Pitfalls(
        found=Part(2, 2), on_line=Part(2, 2), in_function=Part(0, 0), besides=Part(0, 2), among_first=Part(1, 2)
    )
    assert sums.without_rule == Pitfalls(
        found=Part(0, 1), on_line=Part(0, 1), in_function=Part(0, 0), besides=Part(0, 1), among_first=Part(0, 1)
    )
    assert sums.median_error == pytest.approx(0.25)
    assert sums.ninth_decile_error == pytest.approx(0.1 + 0.9 * 0.3)
    assert sums.surprises == ("b pitfall plain",)
    assert (sums.false_alarms, sums.clean) == (("d pitfall run",), 2)
