"""The report as text."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from rich.text import Text

from profkit.findings.values import (
    GROWTH_EVIDENCE,
    Activity,
    Change,
    CostlyPlace,
    Diagnosis,
    Doing,
    Finding,
    KernelFamily,
    Kind,
    Location,
    MemoryPeak,
    Peak,
    Saving,
    Severity,
    TimeShare,
    Timing,
    Verdict,
    VerdictKind,
    WorkerTimes,
)
from profkit.report.html.page import render_html
from profkit.report.markdown import render_markdown
from profkit.report.text import render_text
from profkit.report.wording import peak_note

GB = 10**9

FULL = """\
1 fault costs 43 % (30 to 50) of the step: retained-graph at train.py:31

What to change, the largest gain first
An opportunity also changes numerics or structure.

1. HIGH retained-graph
   The list `losses` keeps the graph of every step alive.
   where    train.py:31 in train_step, 5 times
                losses.append(loss)
   cost     5.30 ms per step (43 % of the step; likely 30 to 50 %); memory grows
            by 4.00 MB per step
   fix      Append the number, not the graph:
                losses.append(loss.detach())
   also at  train.py:44 in evaluate

2. MEDIUM opportunity launch-bound
   The operators are small.
   where    network.py in forward (defined at line 12; the calling line was not
            recorded)
            folder /home/user/models/
   gain     1.00 ms per step (8.0 % of the step)
   fix      torch.compile(model)
   certain  60 %: check before you change anything

Too small to matter, or for your information
- zero-filled-gradients: Gradients are filled with zeros.

What a rule means, with an example: profkit explain retained-graph

Not looked at
- the recording holds no GPU: fragmentation, pageable-transfer

The recording
- The trace was cut off: 3 of 8 steps are missing.
   command  python train.py
   device   cpu
   torch    2.13.0
   Python   3.11.2
   steps    5 steps of 12.3 ms (median), found from the profiler's step marks,
            11.0 ms without the profiler, recording added 12 %

Where the step's time went
forward      9.00 ms   73 %  ##########
unexplained   300 µs  2.4 %
"""


def test_parts_of_a_step_without_a_name_are_rows_too(clean_diagnosis: Diagnosis) -> None:
    timing = replace(clean_diagnosis.timing, shares=(TimeShare("", 12_300_000, 1.0),))
    assert "12.3 ms  100 %" in render_text(replace(clean_diagnosis, timing=timing))


def test_the_report_begins_with_the_verdict_and_ends_with_the_shares_of_the_time(full_diagnosis: Diagnosis) -> None:
    assert render_text(full_diagnosis) == FULL


def test_an_empty_diagnosis_is_one_line(empty_diagnosis: Diagnosis) -> None:
    assert render_text(empty_diagnosis) == "Cannot judge: the recording holds no steps to measure\n"


def test_a_clean_run_says_that_no_fault_was_found(clean_diagnosis: Diagnosis) -> None:
    assert render_text(clean_diagnosis) == (
        "No fault found; 5 steps of 12.3 ms\n"
        "\n"
        "The recording\n"
        "   command  train.py\n"
        "   steps    5 steps of 12.3 ms (median)\n"
    )


def test_what_is_left_is_told_place_by_place(clean_diagnosis: Diagnosis) -> None:
    products = Doing(Activity.PRODUCTS, 0.5, "aten::mm", 3, 0.71, Peak.MEASURED)
    small = Doing(Activity.SMALL, 0.1, "aten::add", 1200)
    line = CostlyPlace(
        0.62, 0.61, Location("a/model.py", 41, "f", "x = f(x)"), does=(products, small), is_explained=True
    )
    kernel = CostlyPlace(0.2, 0.2, name="gemm", does=(Doing(Activity.PYTHON, 0.2),), unjudged="it is unknown")
    text = render_text(replace(clean_diagnosis, costliest=(line, kernel)))
    assert (
        "  62 %  model.py:41, at most 61 % to gain\n"
        "        x = f(x)\n"
        "        - 50 % matrix products and convolutions (most in aten::mm), at 71 % of\n"
        "          the rate measured on this machine\n"
        "        - 10 % 1,200 small operators per step, such as aten::add\n"
        "        - needed for what it computes, as far as a recording shows\n"
        "\n"
        "  20 %  gemm, at most 20 % to gain\n"
        "        - 20 % outside PyTorch: Python, other libraries, or a wait\n"
        "        - not judged: it is unknown\n"
    ) in text


def test_the_devices_kernels_are_told_by_what_they_do(clean_diagnosis: Diagnosis) -> None:
    products = KernelFamily("matrix products", 8_210_000, 0.66, 110, "nvjet_hsh_192x192_64x4", 0.42)
    reductions = KernelFamily("reductions", 4_000_000, 0.33, 0.5, "reduce_kernel (MeanOps)", 0.33)
    rare = KernelFamily("losses", 90_000, 0.009, 1, "nll_loss_forward", 0.009)
    text = render_text(replace(clean_diagnosis, kernels=(products, reductions, rare)))
    assert text.endswith(
        "What the device's kernels do, by share of their time\n"
        "  66 %  matrix products, 8.21 ms a step in 110 kernels\n"
        "        most in nvjet_hsh_192x192_64x4, 42 %\n"
        "  33 %  reductions, 4.00 ms a step in a kernel every 2 steps\n"
        "        all in reduce_kernel (MeanOps)\n"
    )


def test_no_line_is_wider_than_asked_for(full_diagnosis: Diagnosis, leak: Finding) -> None:
    long = replace(leak, message="word " * 60, location=Location("/" + "deep/" * 40 + "train.py", 3, "f", "x" * 300))
    diagnosis = replace(full_diagnosis, findings=(long, *full_diagnosis.findings), health=("note " * 50,))
    for width in (40, 80, 120):
        assert max(map(len, render_text(diagnosis, width).splitlines())) <= width


def test_a_long_source_line_is_wrapped_not_cut(full_diagnosis: Diagnosis, leak: Finding) -> None:
    source = "loss = " + " + ".join(f"term_{number}" for number in range(40))
    finding = replace(leak, location=Location("train.py", 3, "f", source))
    text = " ".join(render_text(replace(full_diagnosis, findings=(finding,))).split())
    assert source in text


def test_a_place_is_never_wrapped_inside_the_file_name(full_diagnosis: Diagnosis, leak: Finding) -> None:
    finding = replace(leak, location=Location("/" + "deep/" * 20 + "train.py", 31, "step", "x"))
    lines = render_text(replace(full_diagnosis, findings=(finding,))).splitlines()
    assert "   where    train.py:31 in step, 5 times" in lines


def test_plain_text_has_no_escape_codes_and_only_ascii_except_units(full_diagnosis: Diagnosis) -> None:
    assert render_text(full_diagnosis).replace("\n", "").isprintable()
    assert render_text(full_diagnosis).replace("µ", "").isascii()


def test_colour_only_adds_escape_codes(full_diagnosis: Diagnosis) -> None:
    coloured = render_text(full_diagnosis, color=True)
    assert "\x1b[" in coloured
    plain = [line.rstrip() for line in Text.from_ansi(coloured).plain.splitlines()]
    assert plain == FULL.splitlines()


def test_text_from_a_trace_cannot_control_the_terminal(full_diagnosis: Diagnosis, hostile_finding: Finding) -> None:
    diagnosis = replace(
        full_diagnosis, findings=(hostile_finding,), health=("\x1b]0;title\x07",), skipped={"\x1b": "\n"}
    )
    text = render_text(diagnosis)
    assert text.replace("\n", "").isprintable()
    assert "[link](http://e.invalid)" in text


def test_a_finding_without_a_saving_is_shown_as_not_measured(full_diagnosis: Diagnosis, leak: Finding) -> None:
    bare = replace(leak, saving=None, location=None, also=(), evidence={}, fix="")
    text = render_text(replace(full_diagnosis, findings=(bare,)))
    assert text.startswith("1 fault has no measured cost: retained-graph\n")
    assert "   seen     5 times\n   cost     unknown: this recording does not show what a fix would save" in text


def test_a_verdict_about_memory_alone_mentions_no_time(full_diagnosis: Diagnosis, leak: Finding) -> None:
    growing = replace(leak, saving=Saving(0, 0.0, 0.0, 0.0, 4_000_000), evidence={GROWTH_EVIDENCE: 4_000_000})
    text = render_text(replace(full_diagnosis, findings=(growing,)))
    assert text.startswith("1 fault makes memory grow by 4.00 MB per step: retained-graph at train.py:31\n")
    assert "   cost     memory grows by 4.00 MB per step\n" in text


@pytest.mark.parametrize("severity", [Severity.LOW, Severity.HIGH])
def test_memory_that_does_not_grow_is_not_called_growth(
    full_diagnosis: Diagnosis, leak: Finding, severity: Severity
) -> None:
    peak = replace(leak, severity=severity, saving=Saving(0, 0.0, 0.0, 0.0, 4_000_000), evidence={})
    text = render_text(replace(full_diagnosis, findings=(peak,)))
    assert text.startswith("1 fault holds 4.00 MB of memory: retained-graph")
    assert "   cost     4.00 MB of memory would be freed\n" in text


def test_removing_a_hidden_wait_is_said_to_save_nothing(full_diagnosis: Diagnosis, leak: Finding) -> None:
    hidden = replace(leak, severity=Severity.LOW, saving=Saving(0, 0.0, 0.0, 0.0), evidence={})
    assert "no time to gain in this recording" in render_text(replace(full_diagnosis, findings=(hidden,)))


def test_several_faults_are_counted_and_the_first_is_named(full_diagnosis: Diagnosis, leak: Finding) -> None:
    second = replace(leak, rule="input-bound", severity=Severity.LOW)
    text = render_text(replace(full_diagnosis, findings=(leak, second)))
    assert text.startswith("2 faults; the worst costs 43 % (30 to 50) of the step: retained-graph at\ntrain.py:31\n")


def test_opportunities_alone_are_not_counted_as_faults(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    chance = replace(leak, kind=Kind.OPPORTUNITY)
    text = render_text(replace(clean_diagnosis, findings=(chance,), skipped={"a": "b"}))
    first, second, *_ = text.splitlines()
    assert first == "No fault, but an opportunity would save 43 % (30 to 50) of the step:"
    assert second == "retained-graph at train.py:31"


def test_a_recording_without_steps_cannot_be_judged(empty_diagnosis: Diagnosis) -> None:
    text = render_text(replace(empty_diagnosis, health=("The trace holds no steps.", "It was cut off.")))
    assert text.splitlines()[0] == "Cannot judge: The trace holds no steps."


def test_a_small_finding_takes_one_line(clean_diagnosis: Diagnosis, leak: Finding) -> None:
    wordy = replace(leak, severity=Severity.INFO, message="many words " * 50)
    lines = render_text(replace(clean_diagnosis, findings=(wordy,))).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("- retained-graph at train.py:31"))
    assert lines[start].endswith(" ...")
    assert lines[start + 1] == ""


def test_only_three_more_places_are_shown(full_diagnosis: Diagnosis, leak: Finding) -> None:
    many = replace(leak, also=tuple(Location("a.py", line, "f") for line in range(1, 6)))
    text = render_text(replace(full_diagnosis, findings=(many,)))
    assert "   also at  a.py:1 in f\n            a.py:2 in f\n            a.py:3 in f\n            and 2 more\n" in text


def test_shares_outside_zero_to_one_are_shown_as_they_are(clean_diagnosis: Diagnosis) -> None:
    shares = (TimeShare("overlap", 30_000_000, 2.4), TimeShare("gap", -1_000, -0.1))
    lines = render_text(replace(clean_diagnosis, timing=replace(clean_diagnosis.timing, shares=shares))).splitlines()
    assert lines[-2:] == ["overlap   30.0 ms  240 %  ##############", "gap      -1.00 µs  -10 %"]


@pytest.mark.parametrize("module", ["profkit.report", "profkit.findings.values"])
def test_rich_is_not_imported_before_a_report_is_wanted(module: str) -> None:
    program = f"import sys, {module}; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


WORKER = WorkerTimes(0, 1, 21, 10**9, 0.38, 0.01, 0.6, 7_340_000, 2_100_000, 45_000_000, 10_000_000)


def test_each_worker_has_a_line(clean_diagnosis: Diagnosis) -> None:
    text = render_text(replace(clean_diagnosis, workers=(WORKER,)), width=200)
    assert text.endswith(
        "What the DataLoader's workers did\n"
        "- worker 1: fetching 38 %, collating 1.0 %, waiting 60 % in 21 batches, each 7.34 ms of CPU time and "
        "handed over in 2.10 ms; 45.0 MB of its own, 10.0 MB more than at the start\n"
    )


def test_workers_of_several_loaders_name_theirs_and_only_the_first_few_are_listed(
    clean_diagnosis: Diagnosis,
) -> None:
    some = tuple(replace(WORKER, loader=i % 2, worker=i, batches=1, private_bytes=None) for i in range(10))
    text = render_text(replace(clean_diagnosis, workers=some), width=200)
    assert "- worker 7 of loader 1: fetching 38 %" in text
    assert "in 1 batch, each 7.34 ms of CPU time and handed over in 2.10 ms\n" in text
    assert text.endswith("- and 2 more workers\n")
    assert "worker 8" not in text


@pytest.mark.parametrize(("steps", "words"), [((7, 7), "number 7 of the program"), ((3, 7), "numbers 3 to 7 of the")])
def test_the_step_numbers_of_the_program_are_worded_for_one_and_for_several(
    clean_diagnosis: Diagnosis, steps: tuple[int, int], words: str
) -> None:
    timing = replace(clean_diagnosis.timing, measured_steps=steps)
    assert words in render_text(replace(clean_diagnosis, timing=timing), width=200)


_TALKS = Timing(4, 129_000_000, "", communication_ns=113_000_000, communication_hidden=0.9714)
_SHARED = ", which may be slower for it: both share the device's processors and memory"


@pytest.mark.parametrize(
    ("timing", "note"),
    [
        (_TALKS, f"Communication takes 113 ms a step, 97 % of it hidden behind computing{_SHARED}"),
        (
            replace(_TALKS, communication_ns=13_000_000, communication_hidden=0.9),
            "Communication takes 13.0 ms a step, 90 % of it hidden behind computing",
        ),
        (
            replace(_TALKS, communication_ns=13_000_000, communication_hidden=1.0),
            f"Communication takes 13.0 ms a step, 100 % of it hidden behind computing{_SHARED}",
        ),
        (
            replace(_TALKS, communication_hidden=0.0),
            "Communication takes 113 ms a step, none of it hidden behind computing",
        ),
        (replace(_TALKS, communication_ns=None), ""),
    ],
)
def test_communication_and_what_hides_it_follow_the_shares(
    clean_diagnosis: Diagnosis, timing: Timing, note: str
) -> None:
    timing = replace(timing, shares=(TimeShare("device: computing", 126_000_000, 0.977),))
    diagnosis = replace(clean_diagnosis, timing=timing)
    lines = render_text(diagnosis, width=200).splitlines()
    assert [line for line in lines if line.startswith("Communication")] == ([note] if note else [])
    assert note in render_markdown(diagnosis)
    assert note.replace("'", "&#39;") in render_html(diagnosis)


def test_without_workers_none_are_mentioned(clean_diagnosis: Diagnosis) -> None:
    assert "worker" not in render_text(clean_diagnosis)


HOST = Timing(
    5,
    21_300_000,
    "",
    shares=(TimeShare("device: computing", 7_900_000, 0.371), TimeShare("idle: launching work", 13_400_000, 0.629)),
)


def test_the_limit_of_the_step_comes_before_the_shares_of_its_time(clean_diagnosis: Diagnosis) -> None:
    assert render_text(replace(clean_diagnosis, timing=HOST)).endswith(
        "\nWhere the step's time went\n"
        "The host bounds the step: launching work 13.4 ms; the device works 7.90 ms of\n21.3 ms\n"
        "device: computing     7.90 ms  37 %  #####\n"
        "idle: launching work  13.4 ms  63 %  #########\n"
    )


@pytest.mark.parametrize(
    ("source", "overhead", "least_ns", "words"),
    [
        ("measured", 0.2, None, "10.0 ms without the profiler, recording added 20 %"),
        (None, None, None, "10.0 ms without the profiler"),
        (
            "measured",
            None,
            7_000_000,
            "10.0 ms without the profiler (at least 7.00 ms: the idle profiler may have slowed launches)",
        ),
        ("estimated", 0.2, None, "10.0 ms without recording (estimated: recording slows the host by 20 %)"),
        ("estimated", None, None, "10.0 ms without recording (estimated)"),
        (
            "estimated",
            0.2,
            5_000_000,
            "10.0 ms without recording (estimated, at least 5.00 ms: recording slows the host by 20 %)",
        ),
    ],
)
def test_the_source_of_the_unrecorded_step_time_is_stated(
    clean_diagnosis: Diagnosis, source: str | None, overhead: float | None, least_ns: int | None, words: str
) -> None:
    timing = Timing(5, 12_000_000, "", 10_000_000, overhead, unprofiled_from=source, unprofiled_least_time_ns=least_ns)
    assert f"(median), {words}\n" in render_text(replace(clean_diagnosis, timing=timing), width=200)


def test_plain_steps_that_took_longer_than_the_recorded_ones_are_told_as_held_up(clean_diagnosis: Diagnosis) -> None:
    timing = Timing(5, 12_000_000, "", 12_000_000, 0.0, unprofiled_from="measured", held_up_step_time_ns=18_000_000)
    words = "(median), 18.0 ms without the profiler: something else held those up, or they did more\n"
    assert words in render_text(replace(clean_diagnosis, timing=timing), width=200)


@pytest.mark.parametrize(
    ("least_ns", "words"), [(6_000_000, "at least 6.00 ms, at most 11.0 ms"), (None, "at most 11.0 ms")]
)
def test_the_longest_unrecorded_step_is_stated(clean_diagnosis: Diagnosis, least_ns: int | None, words: str) -> None:
    timing = Timing(5, 12_000_000, "", 10_000_000, unprofiled_from="estimated", unprofiled_most_time_ns=11_000_000)
    timing = replace(timing, unprofiled_least_time_ns=least_ns)
    report = render_text(replace(clean_diagnosis, timing=timing), width=200)
    assert f"10.0 ms without recording (estimated, {words})" in report


def test_the_first_line_is_the_verdict_without_control_characters(
    clean_diagnosis: Diagnosis,
) -> None:
    verdict = Verdict(VerdictKind.CANNOT_JUDGE, "Cannot judge: \x1b[31mno\nsteps")
    assert render_text(replace(clean_diagnosis, verdict=verdict)).startswith("Cannot judge: \\x1b[31mno steps\n")


def test_under_cannot_judge_there_is_no_finding_for_information(full_diagnosis: Diagnosis) -> None:
    small = tuple(replace(one, severity=Severity.INFO) for one in full_diagnosis.findings)
    judged = replace(full_diagnosis, findings=small, verdict=Verdict(VerdictKind.NOTHING_FOUND, "No fault found"))
    unjudged = replace(judged, verdict=Verdict(VerdictKind.CANNOT_JUDGE, "Cannot judge: the program failed"))
    for render in (render_text, render_markdown):
        assert "for your information" in render(judged).lower()
        assert "for your information" not in render(unjudged).lower()
    assert "profkit explain" not in render_text(unjudged)


@pytest.mark.parametrize(
    ("peak", "text"),
    [
        (
            MemoryPeak("GPU 0", 80 * GB, 2 * GB, 3 * GB, 4 * GB),
            (
                "GPU 0: at most 2.00 GB of 80.0 GB in tensors, 3.00 GB with what PyTorch keeps for later ones, "
                "4.00 GB in all"
            ),
        ),
        (MemoryPeak("GPU 1", 80 * GB, 0, 3 * GB, 0), "GPU 1: at most 3.00 GB of 80.0 GB held by PyTorch"),
        (MemoryPeak("the GPU", 0, 0, 0, 4 * GB), "the GPU: at most 4.00 GB in use"),
        (MemoryPeak("the process", 24 * GB, 0, 0, GB), "the process: at most 1.00 GB of 24.0 GB in use"),
    ],
)
def test_the_memory_use_of_each_device_is_stated(clean_diagnosis: Diagnosis, peak: MemoryPeak, text: str) -> None:
    report = render_text(replace(clean_diagnosis, peaks=(peak,)), width=200)
    assert f"memory   {text}" in report
    assert peak_note(peak) == text


def test_a_fix_with_a_changed_line_is_shown_as_a_diff(full_diagnosis: Diagnosis, leak: Finding) -> None:
    change = Change("train.py", 31, "losses.append(loss)", "losses.append(loss.detach())")
    text = render_text(replace(full_diagnosis, findings=(replace(leak, change=change),)))
    assert "   change   - losses.append(loss)\n            + losses.append(loss.detach())\n" in text
    assert "   change   " not in render_text(full_diagnosis)


SKIPPED = {
    "rule-a": "the recording holds no tensor shapes (record_shapes=True)",
    "rule-b": "the recording holds no tensor shapes (record_shapes=True)",
    "rule-c": "how often each line runs was not recorded (run the program under profkit)",
    "rule-d": "what is kept was not recorded (run a program with steps under profkit)",
    "rule-e": "fewer than 10 steps were timed, too few to tell a slow one",
    "rule-f": "graph breaks show in profkit's own recordings and in Python frames (with_stack=True)",
}
SHORT = [
    "- 6 rules could not look, for 5 reasons (profkit diagnose --verbose tells them)",
    "- next time, record_shapes=True lets rule-a and rule-b look",
    "- next time, running the program under profkit lets rule-c and rule-d look",
    "- next time, with_stack=True lets rule-f look",
]


def _not_looked_at(text: str) -> list[str]:
    return text.partition("Not looked at\n")[2].partition("\n\n")[0].strip().splitlines()


def test_a_device_that_is_not_named_can_be(clean_diagnosis: Diagnosis) -> None:
    skipped = {"slow-a": "the recording does not name its device (`--card NAME` says which it was)", "slow-b": "else"}
    text = render_text(replace(clean_diagnosis, skipped=skipped), width=200)
    assert "- next time, profkit diagnose --card NAME, which names the device, lets slow-a look" in text


def test_what_was_not_looked_at_is_a_count_and_what_to_set_next_time(clean_diagnosis: Diagnosis) -> None:
    diagnosis = replace(clean_diagnosis, skipped=SKIPPED)
    assert _not_looked_at(render_text(diagnosis, width=200)) == SHORT
    found = _not_looked_at(render_markdown(diagnosis))
    assert found[1:] == [
        "- next time, record\\_shapes=True lets `rule-a` and `rule-b` look",
        "- next time, running the program under profkit lets `rule-c` and `rule-d` look",
        "- next time, with\\_stack=True lets `rule-f` look",
    ]


def test_verbose_tells_every_reason(clean_diagnosis: Diagnosis) -> None:
    diagnosis = replace(clean_diagnosis, skipped=SKIPPED)
    lines = _not_looked_at(render_text(diagnosis, width=200, verbose=True))
    assert len(lines) == 5
    assert lines[0] == "- the recording holds no tensor shapes (record_shapes=True): rule-a, rule-b"
    assert len(_not_looked_at(render_markdown(diagnosis, verbose=True))) == 5


def test_the_page_folds_the_reasons_and_shows_what_to_set(clean_diagnosis: Diagnosis) -> None:
    page = render_html(replace(clean_diagnosis, skipped=SKIPPED))
    _, _, section = page.partition("<h2>Not looked at</h2>")
    shown, _, folded = section.partition("<details><summary>6 rules</summary>")
    assert "record_shapes=True lets rule-a and rule-b look" in shown
    assert "too few to tell a slow one" in folded
    assert "too few to tell a slow one" not in shown
