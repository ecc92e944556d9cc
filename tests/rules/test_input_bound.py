"""Waiting for batches: only where a ready batch would make the step shorter, and only as far as there are CPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profkit.core.units import format_time
from profkit.diagnosis.compare.step_times import compare_step_times
from profkit.diagnosis.pipeline import diagnose, read_facts
from profkit.findings.values import Change, Kind, Severity
from profkit.rules.base import CannotLook, Suspicion
from profkit.run.directory import CallSite, Feeding, Host, LoaderUse, LoadSample, Run
from profkit.savings.simulate import predict_saving
from tests.rules.loading import SINGLE, batches, find, on_device, run_on
from tests.traces import annotation, facts_of, mark, memcpy, op, rows_named, runtime, stacks_of, step

pytestmark = pytest.mark.usefixtures("cheap_handing_over")


def test_a_batch_prepared_by_the_main_process_is_worth_its_time_where_cpus_are_free():
    facts = facts_of(batches([40] * 4), run=run_on(cpus=8))
    (found,) = find(facts)
    assert found.rows.tolist() == rows_named(facts.trace, SINGLE)
    assert found.evidence == {
        "wait_ns_per_step": 40_000,
        "step_with_data_ready_ns": 60_000,
        "workers": 0,
        "workers_needed": 1,
    }
    assert predict_saving(facts, found.edit).fraction == 0.4
    assert "num_workers=1" in found.fix
    assert "main process" in found.message


@pytest.mark.parametrize(("plain_us", "told"), [(50, "20.0 µs"), (100, "40.0 µs"), (150, "40.0 µs")])
def test_the_wait_that_is_told_is_as_long_as_its_price_says(plain_us, told):
    """40 of 100 µs as recorded. Plain steps that took longer were held up: then it is told as recorded."""
    facts = facts_of(batches([40] * 4), run=replace(run_on(cpus=8), reference_step_ns=(plain_us * 1_000,) * 8))
    (found,) = find(facts)
    assert found.message.startswith(f"Each step waits {told} for its batch")
    assert format_time(predict_saving(facts, found.edit).time_ns_per_step) == told


def test_wait_and_rest_are_those_of_the_median_step():
    """Of 100, 100, 100 and 140 µs five elevenths go to waiting, and so they do of the median."""
    (found,) = find(facts_of(batches([40, 40, 40, 80]), run=run_on(cpus=8)))
    assert found.evidence["wait_ns_per_step"] == 45_454
    assert found.evidence["step_with_data_ready_ns"] == 54_545


def test_the_line_is_that_of_the_loop():
    located = [step(0, 0, 100), mark(4, 0, 41), annotation(SINGLE, 0, 40), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    facts = facts_of([*located, *later], run=run_on(8))
    (found,) = find(facts)
    assert set(facts.lines.site[found.rows]) == {4}


def test_where_a_generator_makes_the_loader_the_line_that_asks_it_is_named_besides():
    """`yield from DataLoader(...)` on the generator's line, `next(batches)` on the step's."""
    made = CallSite("/w/train.py", 9, "batches", "yield from DataLoader(data)")
    sites = (CallSite("/w/train.py", 28, "train", "x = next(source)"), made)
    located = [step(0, 0, 100), mark(0, 0, 42), mark(1, 0.5, 41), annotation(SINGLE, 1, 40), op("aten::mm", 43, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    use = LoaderUse(0, 8, pin_memory=False, persistent_workers=False, site=made)
    run = replace(run_on(8), loaders=(use,))
    (found,) = find(facts_of([*located, *later], run=run, callsites=sites))
    assert [place.line for place in found.places.all()] == [9, 28]


@pytest.mark.parametrize(("spent", "named"), [(30, True), (19, False)])
def test_the_line_that_takes_most_of_a_batch_is_named(spent, named):
    """Of the 40 µs that the loop's line waits, at least half."""
    sites = (CallSite("/w/train.py", 9, "main", "for x in loader:"), CallSite("/w/data.py", 4, "Set.__getitem__", "x"))
    located = [step(0, 0, 100), mark(0, 0, 41), annotation(SINGLE, 0, 40), mark(1, 2, spent), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    (found,) = find(facts_of([*located, *later], run=run_on(8), callsites=sites))
    assert ("75 % of a batch's time is spent at data.py:4, in Set.__getitem__" in found.fix) == named
    assert [place.line for place in found.also] == [4] * named


def making(wait_us: float, line_us: float, others_cpus: float = 0.0) -> list[Suspicion]:
    """What is found if the model fills both CPUs. In the located step the dataset's line calls two others; together
    they take ``line_us`` of the wait."""
    sites = (
        CallSite("/w/train.py", 9, "main", "for x in loader:"),
        CallSite("/w/data.py", 4, "Set.__getitem__", "features = build(self.all)"),
        CallSite("/w/data.py", 11, "build", "scaled = (all - all.mean()) / all.std()"),
        CallSite("/w/data.py", 12, "build", "return np.stack([scaled, hours])"),
    )
    half = line_us / 2
    marks = [mark(0, 0, wait_us + 0.5), mark(1, 1, line_us), mark(2, 1.2, half - 0.4), mark(3, 1.2 + half, half - 0.4)]
    located = [step(0, 0, wait_us + 60), *marks, annotation(SINGLE, 0, wait_us), op("aten::mm", wait_us + 1, 50)]
    later = [{**event, "ts": event["ts"] + wait_us + 60} for event in batches([wait_us] * 4)]
    samples = others(others_cpus) if others_cpus else ()
    return find(facts_of([*located, *later], run=run_on(cpus=2, threads=2), callsites=sites, samples=samples))


def test_where_workers_gain_nothing_the_line_that_makes_the_samples_is_named_without_a_price():
    (found,) = making(40, 30)
    assert [(place.file, place.line) for place in found.places.all()] == [("/w/data.py", 4)]
    assert (found.edit, found.severity) == (None, Severity.LOW)
    assert "With each batch ready the step would be 40 % shorter. Workers would take" in found.message
    assert "75 % of a batch's time is spent at data.py:4, in Set.__getitem__" in found.fix


@pytest.mark.parametrize(("wait_us", "line_us"), [(14, 12), (40, 19)])
def test_samples_that_take_little_of_the_step_or_have_no_dominating_line_are_silent(wait_us, line_us):
    assert making(wait_us, line_us) == []


def test_from_a_fifth_of_the_step_on_the_making_of_samples_is_told():
    assert len(making(16, 14)) == 1


def dominating(line_us: float, others_us: float = 0, others_cpus: float = 0.0) -> list[Suspicion]:
    """What is found if the model fills both CPUs, and of 40 µs one line takes ``line_us``, others of its function
    ``others_us``."""
    sites = (
        CallSite("/w/train.py", 9, "main", "for x in loader:"),
        *(CallSite("/w/data.py", line, "Set.__getitem__", "row = frame.iloc[at]") for line in (21, 22)),
    )
    marks = [mark(0, 0, 40.5), mark(1, 1, line_us), *([mark(2, 30, others_us)] if others_us else [])]
    located = [step(0, 0, 100), *marks, annotation(SINGLE, 0, 40), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    samples = others(others_cpus) if others_cpus else ()
    return find(facts_of([*located, *later], run=run_on(cpus=2, threads=2), callsites=sites, samples=samples))


def test_a_line_that_takes_most_of_a_batch_itself_leads_with_the_price_of_its_function():
    (found,) = dominating(26, 6)
    assert found.location is not None
    assert (found.location.line, found.kind) == (21, Kind.OPPORTUNITY)
    assert (
        "80 % of a batch goes to `Set.__getitem__`, 65 % to this line of it. Without the function the" in found.message
    )
    assert (
        "step would be at most 32 % shorter. Workers would take the CPUs from the model and gain nothing here."
        in found.message
    )
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == pytest.approx([8_000] * 4, abs=1)


@pytest.mark.parametrize(("line_us", "priced"), [(20, True), (19.6, False)])
def test_where_workers_gain_nothing_a_line_leads_from_half_of_a_batch_on(line_us, priced):
    assert [one.edit is not None for one in dominating(line_us)] == [True] * priced


@pytest.mark.parametrize(("slow", "is_found"), [((), False), ((7,), False), ((3, 7), True)])
def test_a_line_that_was_held_up_once_does_not_lead(slow, is_found):
    """Of eight samples, line 22 takes 1 µs, but more in those that are ``slow``: 20 µs in all."""
    sites = (
        CallSite("/w/train.py", 9, "main", "for x in loader:"),
        CallSite("/w/data.py", 21, "read", "x"),
        CallSite("/w/data.py", 22, "Set.__getitem__", "x"),
    )
    marks, at = [mark(0, 0, 40.5)], 0.5
    for sample in range(8):
        lasts = 1 + 20 / len(slow) if sample in slow else 1
        marks += [mark(1, at, 1), mark(2, at + 1, lasts)]
        at += 1 + lasts
    located = [step(0, 0, 100), *marks, annotation(SINGLE, 0, 40), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    found = find(facts_of([*located, *later], run=run_on(cpus=2, threads=2), callsites=sites))
    assert bool(found) == is_found


def sampled(shares: dict[tuple[int, ...], int]) -> list[Suspicion]:
    """Of 100 µs the step waits for 40. Line marks say that line 22 takes nearly all of it, samples what is given."""
    sites = (
        CallSite("/w/train.py", 9, "main", "for x in loader:"),
        *(CallSite("/w/data.py", line, "Set.__getitem__", "row = frame.iloc[at]") for line in (21, 22, 23)),
    )
    located = [step(0, 0, 100), mark(0, 0, 40.5), mark(2, 1, 38), annotation(SINGLE, 0, 40), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    stacks = stacks_of(sites, shares, batch_from=1)
    return find(facts_of([*located, *later], run=run_on(cpus=2, threads=2), callsites=sites, stacks=stacks))


def test_samples_say_which_line_makes_a_batch_and_what_it_calls():
    (found,) = sampled({(0, 1): 26, (0, 2): 6, (0,): 8})
    assert found.location is not None
    assert (found.location.line, found.kind) == (21, Kind.OPPORTUNITY)
    assert "80 % of a batch goes to `Set.__getitem__`, 65 % to this line of it, which calls `copy.deepcopy`." in (
        found.message
    )
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == pytest.approx([8_000] * 4, abs=1)


@pytest.mark.parametrize(("percent", "line"), [(20, 21), (19, None)])
def test_by_samples_the_innermost_line_with_half_of_a_batch_is_told(percent, line):
    """It calls another line, so that neither takes half itself."""
    found = sampled({(0, 1): 10, (0, 1, 2): percent - 10, (0,): 40 - percent})
    told = [f"{percent / 0.4:.0f} % of a batch's time is spent at data.py:21" in one.fix for one in found]
    assert told == ([True] if line else [])


@pytest.mark.parametrize(("percent", "priced"), [(20, True), (19, False)])
def test_by_samples_too_a_line_leads_from_half_of_a_batch_on(percent, priced):
    found = sampled({(0, 1): percent, (0, 2): 10, (0,): 30 - percent})
    assert [one.edit is not None for one in found] == [True] * priced


@pytest.mark.parametrize(("shares", "priced"), [((16, 14, 4), True), ((19, 11, 4), True), ((15, 14, 11), False)])
def test_a_line_leads_with_another_if_both_take_three_quarters(shares, priced):
    """Of 40 samples. The other line is named besides."""
    found = sampled({(0, 1): shares[0], (0, 2): shares[1], (0, 3): shares[2], (0,): 40 - sum(shares)})
    assert [one.edit is not None for one in found] == [True] * priced
    lines = [place.line for one in found for place in one.places.all()]
    assert lines[:2] == ([21, 22] if priced else [])


@pytest.mark.parametrize(("wait_us", "priced"), [(15, True), (14, False)])
def test_a_dominating_line_has_a_price_where_waiting_takes_a_fifth_of_the_step(wait_us, priced):
    """Of 75 µs it takes a fifth, and the line four fifths of that: less than a fifth of the step."""
    sites = (CallSite("/w/train.py", 9, "main", "for x in loader:"), CallSite("/w/data.py", 4, "Set.__iter__", "x"))
    marks = [mark(0, 0, wait_us + 0.5), mark(1, 1, 0.8 * wait_us)]
    located = [step(0, 0, wait_us + 60), *marks, annotation(SINGLE, 0, wait_us), op("aten::mm", wait_us + 1, 50)]
    later = [{**event, "ts": event["ts"] + wait_us + 60} for event in batches([wait_us] * 4)]
    found = find(facts_of([*located, *later], run=run_on(cpus=2, threads=2), callsites=sites))
    assert [(one.edit is not None, one.severity) for one in found] == ([(True, Severity.MEDIUM)] if priced else [])


def beside_workers(cpus: int, line_us: float) -> list[Suspicion]:
    """Of 100 µs the step waits for 40, of which a line takes ``line_us``; each CPU but one is free for a worker."""
    sites = (CallSite("/w/train.py", 9, "main", "for x in loader:"), CallSite("/w/data.py", 4, "Set.__getitem__", "x"))
    located = [step(0, 0, 100), mark(0, 0, 41), annotation(SINGLE, 0, 40), mark(1, 2, line_us), op("aten::mm", 41, 50)]
    later = [{**event, "ts": event["ts"] + 100} for event in batches([40] * 4)]
    return find(facts_of([*located, *later], run=run_on(cpus), callsites=sites))


def test_where_workers_give_back_as_much_only_the_loader_is_named():
    """They give back all 40 µs, the line at most 30."""
    (found,) = beside_workers(8, 30)
    assert found.message.startswith("Each step waits 40.0 µs for its batch, because the main process prepares it while")
    assert found.kind is None
    assert "75 % of a batch's time is spent at data.py:4" in found.fix


@pytest.mark.parametrize(("line_us", "leads"), [(80, True), (79, False)])
def test_a_line_leads_if_it_gives_back_as_much_as_workers_do_here(line_us, leads):
    """Of 160 µs the step waits for 100. One CPU is free for workers while the model computes for 60; what then is left,
    40, is divided among two CPUs. So workers give back 80."""
    sites = (CallSite("/w/train.py", 9, "main", "for x in loader:"), CallSite("/w/data.py", 4, "Set.__getitem__", "x"))
    marks = [mark(0, 0, 101), mark(1, 2, line_us)]
    located = [step(0, 0, 160), *marks, annotation(SINGLE, 0, 100), op("aten::mm", 101, 50)]
    later = [{**event, "ts": event["ts"] + 160} for event in batches([100] * 4)]
    first, *_ = find(facts_of([*located, *later], run=run_on(cpus=2), callsites=sites))
    assert (first.kind is Kind.OPPORTUNITY) == leads


def one_batch_each(length: int, seeds: bool = True) -> list[Suspicion]:
    """Four steps of 100 µs, each of which asks for the first batch of an iterator that orders ``length`` samples."""
    events = []
    for number in range(4):
        at = 100 * number
        events += [
            step(number, at, 100),
            *([op("aten::random_", at, 1)] if seeds else []),
            annotation(SINGLE, at + 2, 60),
        ]
        events += [
            op("aten::randperm", at + 5, 20, concrete=[str(length), "", ""]),
            op("aten::resolve_conj", at + 26, 1),
        ]
        events += [op("aten::index", at + 50, 5), op("aten::mm", at + 65, 30)]
    uses = (LoaderUse(0, 8, pin_memory=False, persistent_workers=False),)
    return find(facts_of(events, run=replace(run_on(cpus=2, threads=2), loaders=uses)))


def test_an_iterator_for_each_batch_orders_all_samples_for_nothing():
    """48 of the 60 µs pass until the batch is picked; freeing 100 numbers takes 1 µs of the 3 before the model runs."""
    (found,) = one_batch_each(100)
    assert found.message.startswith("Each step makes a new iterator of the DataLoader for a single batch.")
    assert "49.0 µs a step" in found.message
    assert found.edit is not None
    assert found.edit.kept_ns.tolist() == [12_000] * 4
    assert (found.edit.span_end_ns - found.edit.span_start_ns).tolist() == [1_000] * 4
    assert found.edit.uncertainty == 0.2


def test_an_order_is_freed_until_the_next_event_at_the_latest():
    (found,) = one_batch_each(1_000)
    assert found.edit is not None
    assert (found.edit.span_end_ns - found.edit.span_start_ns).tolist() == [3_000] * 4
    assert "persistent_workers" not in found.fix


@pytest.mark.parametrize(("length", "seeds"), [(15, True), (100, False)])
def test_an_order_that_is_used_or_an_iterator_that_lasts_is_no_fault(length, seeds):
    """An order of 15 samples is used up by two batches of 8; without a new seed the iterator is that of before."""
    assert not [one for one in one_batch_each(length, seeds) if "new iterator" in one.message]


def test_workers_for_a_single_batch_are_not_advised():
    """They would start and stop in every step; an iterator that lasts is what they are for."""
    assert one_batch_each(15, seeds=True) == []
    (found,) = one_batch_each(15, seeds=False)
    assert "num_workers" in found.fix


def test_workers_are_as_many_as_keep_up_with_the_step():
    (found,) = find(facts_of(batches([200] * 4), run=run_on(cpus=8)))
    assert found.evidence["workers_needed"] == 4  # 200 µs for a batch, 60 for the rest: 3.3


def test_a_worker_gives_nothing_back_where_the_model_fills_all_cpus():
    """Its 40 µs on one of the two CPUs are 40 µs in which the model's threads wait for the one that had it."""
    assert find(facts_of(batches([40] * 4), run=run_on(cpus=2, threads=2))) == []
    assert len(find(facts_of(batches([40] * 4), run=run_on(cpus=3, threads=2)))) == 1


@pytest.mark.parametrize(("computing", "saved"), [(1.0, 0.4), (1.5, 0.3), (2.0, 0.0)])
def test_the_cpus_that_the_model_fills_are_those_that_were_counted(computing, saved):
    """Whatever the number of threads. With 1.5, half a CPU does 30 of the 40 µs; the rest comes on both CPUs."""
    facts = facts_of(batches([40] * 4), run=run_on(cpus=2, threads=2, feeding=Feeding(1.0, computing)))
    assert [predict_saving(facts, found.edit).fraction for found in find(facts)] == [saved] * (saved > 0)


def test_what_a_batch_is_blocked_for_needs_no_cpu():
    """Three quarters of the 40 µs are spent on files: 10 µs of the CPUs that the model fills remain."""
    facts = facts_of(batches([40] * 4), run=run_on(cpus=2, threads=2, feeding=Feeding(0.25, 2.0)))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.3


@pytest.mark.parametrize(
    ("computing", "memory", "workers"),
    [(1.0, 64 << 30, 2), (0.5, 64 << 30, 4), (0.1, 64 << 30, 10), (0.1, 6_000_000_000, 5), (0.0, 1 << 30, 2)],
)
def test_more_workers_than_cpus_are_worth_it_where_a_batch_waits_instead_of_computing(computing, memory, workers):
    """Ten keep up. Of two CPUs each worker needs its share of one, and of memory 0.3 GB of a quarter."""
    run = Run(host=Host(2, 1, memory), feeding=Feeding(computing, 1.0))
    (found,) = find(facts_of(batches([590] * 4), run=run))
    assert found.evidence["workers_needed"] == workers
    assert f"num_workers={workers}" in found.fix
    assert ("PyTorch warns of more workers than CPUs" in found.fix) == (workers > 2)


def test_what_the_workers_give_and_what_a_ready_batch_would_give_are_both_said():
    (found,) = find(facts_of(batches([200] * 4), run=run_on(cpus=2)))
    assert found.message.endswith(
        "2 workers, which share the CPUs with the model, would make the step 50 % shorter. With each batch ready the "
        "step would be 77 % shorter."
    )
    (found,) = find(facts_of(batches([200] * 4), run=run_on(cpus=8)))
    assert found.message.endswith("while the model waits. 4 workers would make the step 77 % shorter.")


def test_more_loading_than_computing_is_divided_among_the_cpus_even_where_the_model_fills_them():
    """A batch of 200 µs and two workers: 100 µs while the model stands still."""
    facts = facts_of(batches([200] * 4), run=run_on(cpus=2, threads=2, feeding=Feeding(1.0, 2.0)))
    (found,) = find(facts)
    assert found.evidence["wait_ns_per_step"] == 200_000
    assert predict_saving(facts, found.edit).time_ns_per_step == 100_000
    assert found.evidence["cpus_computing"] == 2.0
    assert "share the CPUs with the model" in found.message


def others(cpus: float) -> tuple[LoadSample, ...]:
    return tuple(LoadSample(i, 1 << 30, 0.5, others_cpus=cpus if i else None) for i in range(5))


@pytest.mark.parametrize(("busy", "saved"), [(0.0, 0.4), (1.0, 0.4), (14.0, 0.4)])
def test_cpus_that_other_programs_leave_idle_are_promised(busy, saved):
    """Of 16, of which the model takes one."""
    run = run_on(cpus=16, feeding=Feeding(1.0, 1.0))
    (found,) = find(facts := facts_of(batches([40] * 4), run=run, samples=others(busy)))
    assert predict_saving(facts, found.edit).fraction == saved


@pytest.mark.parametrize("busy", [15.0, 16.0])
def test_where_only_other_programs_keep_workers_from_being_worth_it_nothing_is_judged(busy):
    run = run_on(cpus=16, feeding=Feeding(1.0, 1.0))
    with pytest.raises(CannotLook, match=f"other processes kept {busy} of the 16 CPUs busy"):
        find(facts_of(batches([40] * 4), run=run, samples=others(busy)))


def test_where_workers_are_not_worth_it_on_a_quiet_machine_either_other_programs_do_not_matter():
    """The model takes all CPUs with its threads, and a batch 1 of 61 µs."""
    run = run_on(cpus=2, threads=2, feeding=Feeding(2.0, 2.0))
    assert find(facts_of(batches([1] * 4), run=run, samples=others(2.0))) == []


def test_what_workers_would_take_from_other_programs_may_be_nothing():
    """Of two CPUs another program has one: two workers get four thirds of one, if each process gets the same."""
    facts = facts_of(batches([240] * 4, work_us=6), run=run_on(cpus=2, feeding=Feeding(1.0, 1.0)), samples=others(1.0))
    (found,) = find(facts)
    saving = predict_saving(facts, found.edit)
    assert saving.time_ns_per_step == 60_000
    assert saving.low == 0.0
    assert found.evidence["cpus_others"] == 1.0
    assert "other programs" in found.message


@pytest.mark.parametrize(("threads", "reported"), [(1, 1), (2, 0)])
def test_where_other_programs_leave_no_cpu_idle_the_model_may_want_one_for_each_thread(threads, reported):
    """It got a quarter of one. A batch of 61 µs and 60 of the rest: two workers."""
    run = run_on(cpus=2, threads=threads, feeding=Feeding(0.25, 0.25))
    facts = facts_of(batches([61] * 4), run=run, samples=others(1.75))
    if reported:
        assert len(find(facts)) == 1
    else:
        with pytest.raises(CannotLook, match="a quieter machine"):
            find(facts)


def test_beside_other_programs_what_makes_a_batch_is_told_all_the_same():
    """Whether workers pay is open, but one line that takes half of a batch is known, with what it calls or itself."""
    for found, line, severity in (
        (making(40, 21, others_cpus=2.0), 4, Severity.LOW),
        (dominating(21, 6, others_cpus=2.0), 21, Severity.MEDIUM),
    ):
        assert [one.severity for one in found] == [severity]
        assert "Other programs keep the CPUs busy, so whether workers help is open." in found[0].message
        assert [one.location.line for one in found if one.location is not None] == [line]


def test_beside_a_gpu_the_host_is_idle_as_before():
    idle = run_on(cpus=2, threads=2, feeding=Feeding(1.0, 1.0))
    facts = facts_of(on_device([40] * 4, busy_us=30), run=idle)
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)


def test_one_cpu_alone_gives_nothing_to_gain():
    assert find(facts_of(batches([40] * 4), run=run_on(cpus=1))) == []


def test_few_cpus_bound_what_workers_can_do():
    """A batch of 200 µs on two CPUs beside a model on one: (200 + 60) / 2 = 130 of 260 µs remain."""
    facts = facts_of(batches([200] * 4), run=run_on(cpus=2))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.5
    assert found.evidence["workers_needed"] == 2


def test_a_batch_from_a_worker_is_given_page_by_page(monkeypatch):
    """Two samples of 64 KiB: 32 pages at 250 ns are 8 µs of the 40, at 500 ns twice as much."""
    samples = [op("aten::stack", 1, 5, dims=[[[64, 256], [64, 256]], []], types=["TensorList", "Scalar"])]
    for page_ns, saved in ((250, 0.32), (500, 0.24)):
        monkeypatch.setattr("profkit.rules.input_bound._PAGE_NS", page_ns)
        facts = facts_of(batches([40] * 4, extra=samples), run=run_on(cpus=8))
        (found,) = find(facts)
        assert predict_saving(facts, found.edit).fraction == saved


@pytest.mark.parametrize(("stacks", "saved"), [(0, 0.32), (1, 0.32), (2, 0.32), (4, 0.28)])
def test_each_tensor_of_a_batch_is_asked_for_by_itself(stacks, saved, monkeypatch):
    """At 2 µs each: two of them and two for the queues are 8 µs of the 40, four of them 12."""
    samples = [op("aten::stack", 2 * i, 1) for i in range(stacks)]
    monkeypatch.setattr("profkit.rules.input_bound._TENSOR_NS", 2000)
    facts = facts_of(batches([40] * 4, extra=samples), run=run_on(cpus=8))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == saved


@pytest.mark.parametrize(("tensor_ns", "reported"), [(10_000, 0), (9_000, 1)])
def test_batches_that_cost_no_more_than_being_handed_over_are_silent(tensor_ns, reported, monkeypatch):
    monkeypatch.setattr("profkit.rules.input_bound._TENSOR_NS", tensor_ns)
    assert len(find(facts_of(batches([40] * 4), run=run_on(cpus=8)))) == reported


def test_a_batch_of_two_tensors_costs_1_2_ms(monkeypatch):
    monkeypatch.undo()  # the prices of the rule itself

    def found(wait_us: float) -> list[Suspicion]:
        return find(facts_of(batches([wait_us] * 4, work_us=1000), run=run_on(cpus=8)))

    assert found(1200) == []
    assert len(found(1300)) == 1


def test_what_is_sent_to_the_device_tells_the_size_of_a_batch():
    sent = [memcpy("Memcpy HtoD (Pageable -> Device)", 41, 2, size_bytes=4 * 4096, correlation=7)]
    facts = facts_of([*batches([40] * 4, extra=[runtime("cudaMemcpyAsync", 40, 1, correlation=7)]), *sent])
    (found,) = find(facts)
    assert found.edit.kept_ns.tolist() == [250] * 4  # one of the four batches was sent: a page a step


def test_an_unknown_host_bounds_nothing():
    facts = facts_of(batches([40] * 4))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == 0.4


@pytest.mark.parametrize(("wait", "reported"), [(1.8, 0), (2.0, 1)])
def test_three_percent_is_the_least_gain(wait, reported):
    assert len(find(facts_of(batches([wait] * 4), run=run_on(8)))) == reported


def test_a_wait_that_the_device_works_through_is_silent():
    """The device needs 99 µs of each step of 100: a ready batch would not make it faster."""
    assert find(facts_of(on_device([40] * 4, busy_us=99))) == []


def test_a_wait_in_which_the_device_idles_is_reported_with_what_it_costs():
    facts = facts_of(on_device([40] * 4, busy_us=30))
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.4, abs=0.005)
    assert "the device idles" in found.message
    assert "pin_memory=True" in found.fix


def test_resnet_without_workers_waits_three_tenths_of_its_step(corpus):
    facts = read_facts(corpus / "kineto" / "resnet50_workers0_v100.pt.trace.json.gz")
    (found,) = find(facts)
    assert predict_saving(facts, found.edit).fraction == pytest.approx(0.30, abs=0.02)


def test_the_saving_of_resnets_workers_is_that_of_the_recording_with_four_of_them(corpus):
    """Within 7 % of the step of the difference between the step times of both as `profkit compare` states them."""
    without, four = (read_facts(corpus / "kineto" / f"resnet50_workers{n}_v100.pt.trace.json.gz") for n in (0, 4))
    (found,) = find(without)
    predicted_ns = predict_saving(without, found.edit).time_ns_per_step
    steps = [[facts.steps.duration_ns[facts.steps.measured].tolist()] for facts in (without, four)]
    seen = compare_step_times(*steps)
    assert predicted_ns == pytest.approx(seen.before_ns - seen.after_ns, abs=0.07 * seen.before_ns)


@pytest.mark.parametrize(
    "name", ["resnet50_workers4_v100.pt.trace.json.gz", "recsys_eager_a100.json.gz", "recsys_graphed_v100.json.gz"]
)
def test_loaders_that_keep_up_stay_quiet(corpus, name):
    assert find(read_facts(corpus / "kineto" / name)) == []


@pytest.mark.parametrize(
    ("source", "after"),
    [
        ("for x in DataLoader(data):", "for x in DataLoader(data, num_workers=1, persistent_workers=True):"),
        ("for x in DataLoader(data, num_workers=workers):", None),
        ("for x in loader:", None),
    ],
)
def test_the_line_that_makes_the_loader_is_changed_where_it_shows_all_arguments(source: str, after: str | None) -> None:
    made = CallSite("/w/train.py", 9, "train", source)
    use = LoaderUse(0, 8, pin_memory=False, persistent_workers=False, site=made)
    facts = facts_of(batches([40] * 4), run=replace(run_on(8), loaders=(use,)))
    (found,) = [one for one in diagnose(facts).findings if one.rule == "input-bound"]
    assert found.change == (Change("/w/train.py", 9, source, after) if after else None)
