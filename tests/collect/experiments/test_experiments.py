"""Experiments: both forms compute the same, their turns alternate, and a refusal has a reason."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from msgspec.structs import replace

from profkit.collect.experiments import implementations as forms
from profkit.collect.experiments import process as experiments
from profkit.collect.experiments.implementations import CannotRun, forms_of
from profkit.collect.experiments.process import answer, choose_device, run, take_turns
from profkit.core.processor import processor_name
from profkit.run.experiment import RUNNABLE, RUNNABLE_BINARY, RUNNABLE_PRODUCTS, Case, Experiment, Request

LINEAR = Case("linear", ((4, 8), (6, 8), (6,)), "float64", 2.0)
ATTENTION = Case("scaled_dot_product_attention", ((2, 8, 4), (2, 8, 4), (2, 8, 4)))
CONV = Case("conv2d", ((1, 2, 6, 6), (3, 2, 3, 3)), "float64", 1.0, ("", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"))
POOLING = Case("max_pool2d", ((1, 2, 6, 6),), arguments=("", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"))
NORM = Case("batch_norm", ((2, 3, 4, 4), (3,), (3,), (3,), (3,)), arguments=("",) * 5 + ("True", "0.1", "1e-5", "True"))
ADAM = Case("Adam", ((4, 4), (4,)))
ALL = {
    "narrower-type": Experiment("narrower-type", (LINEAR, CONV), to="float32"),
    "fused-attention": Experiment("fused-attention", (ATTENTION,), count=1),
    "fused-optimizer": Experiment("fused-optimizer", (ADAM,), to="fused"),
    "fewer-threads": Experiment("fewer-threads", (LINEAR,), to="1", count=2),
    "batched-products": Experiment("batched-products", (replace(LINEAR, dtype="float32"),), count=3),
    "reduced-precision": Experiment("reduced-precision", (replace(LINEAR, dtype="float32"),), to="bfloat16"),
    "channels-last": Experiment("channels-last", (CONV, POOLING)),
    "cudnn-benchmark": Experiment("cudnn-benchmark", (CONV,)),
}


@pytest.fixture(autouse=True)
def _the_machine_is_not_crowded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although other tests run at the same time."""
    monkeypatch.setattr(experiments, "count_crowded_ns", lambda: None)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_every_kind_of_experiment_gives_a_factor_between_its_bounds(kind, backward):
    found = run(replace(ALL[kind], backward=backward), "cpu", budget_s=0.02)
    assert 0 < found.low <= found.factor <= found.high
    assert found.factor == pytest.approx(found.second_ns / found.first_ns, rel=0.01)


def test_operators_run_in_both_types():
    wide, narrow = forms_of(ALL["narrower-type"], LINEAR, "cpu")
    assert (wide().dtype, narrow().dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(wide().float(), narrow())


def test_a_product_runs_under_autocast_and_leaves_its_parameters_in_float32():
    full, reduced = forms_of(ALL["reduced-precision"], replace(LINEAR, dtype="float32"), "cpu")
    assert (full().dtype, reduced().dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(full(), reduced().float(), rtol=0.05, atol=0.05)
    gradients = forms_of(replace(ALL["reduced-precision"], backward=True), LINEAR, "cpu")[1]()
    assert [one.dtype for one in gradients] == [torch.bfloat16, torch.float32, torch.float32]


def test_tf32_is_allowed_in_only_one_form():
    forbidden, allowed = forms_of(replace(ALL["reduced-precision"], to="tf32"), LINEAR, "cpu")
    backends = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in backends]
    try:
        allowed()
        assert [one.allow_tf32 for one in backends] == [True, True]
        forbidden()
        assert [one.allow_tf32 for one in backends] == [False, False]
    finally:
        for one, value in zip(backends, before, strict=True):
            one.allow_tf32 = value


def test_cudnn_tries_kernels_in_only_one_form(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
    untried, tried = forms_of(ALL["cudnn-benchmark"], CONV, "cpu")
    for form, expected in ((tried, True), (untried, False)):
        form()
        assert torch.backends.cudnn.benchmark is expected


@pytest.mark.parametrize(
    "case",
    [
        replace(CONV, dtype="float32"),
        POOLING,
        NORM,
        Case("adaptive_avg_pool2d", ((1, 2, 6, 6),), arguments=("", "[1, 1]")),
        Case("avg_pool2d", ((1, 2, 6, 6),), arguments=("", "[2, 2]")),
    ],
    ids=lambda case: case.operator,
)
def test_an_operator_on_images_computes_the_same_in_both_layouts(case):
    first, last = forms_of(ALL["channels-last"], case, "cpu")
    assert first().is_contiguous()
    assert last().is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(first(), last(), rtol=1e-4, atol=1e-5)
    forms_of(replace(ALL["channels-last"], backward=True), case, "cpu")[1]()


def test_cases_are_weighted_by_their_recorded_time(monkeypatch):
    """The factors are 0.5 and 1, and the first case takes three quarters of the recorded time."""
    both = iter([experiments.Turns([10.0], [5.0]), experiments.Turns([90.0], [90.0])])
    monkeypatch.setattr(experiments, "take_turns", lambda *_: next(both))
    cases = (replace(LINEAR, recorded_ns=300.0), replace(LINEAR, recorded_ns=100.0))
    assert run(replace(ALL["narrower-type"], cases=cases), "cpu").factor == pytest.approx(0.625)


def test_both_forms_of_attention_compute_the_same():
    written_out, fused = forms_of(ALL["fused-attention"], replace(ATTENTION, shapes=((2, 8, 4),) * 3), "cpu")
    query, key, value = torch.randn(3, 2, 8, 4).unbind(0)
    apart, together = (form.__closure__ for form in (written_out, fused))
    functions = [
        next(cell.cell_contents for cell in cells if callable(cell.cell_contents)) for cells in (apart, together)
    ]
    # The softmax is the one pass besides the products: scores are not scaled, while the fused form divides by sqrt(4).
    torch.testing.assert_close(
        functions[0](query / 2, key, value), functions[1](query, key, value)[0], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "case",
    [
        Case("linear", ((4, 8), (6, 8), (6,))),
        Case("linear", ((2, 4, 8), (6, 8))),
        Case("linear", ((8,), (6, 8))),
        Case("mm", ((4, 8), (8, 6))),
        Case("addmm", ((6,), (4, 8), (8, 6))),
        Case("addmm", ((1, 6), (4, 8), (8, 6))),
        Case("matmul", ((2, 4, 8), (2, 8, 6))),
        Case("relu", ((4, 8),)),
        Case("add", ((4, 8), (4, 8))),
    ],
)
def test_a_batch_computes_the_same_as_its_members(case):
    operator, batched = forms._operator(case), forms._batched_operator(case)
    members = [[torch.randn(shape) for shape in case.shapes] for _ in range(3)]
    together = batched(*(torch.stack(column) for column in zip(*members, strict=True)))
    apart = torch.stack([operator(*tensors) for tensors in members])
    torch.testing.assert_close(together.reshape(apart.shape), apart, rtol=1e-4, atol=1e-5)


def test_every_operator_that_a_rule_may_name_can_run():
    for name in RUNNABLE - {"conv1d", "conv2d", "conv3d"}:
        assert callable(forms._operator(Case(name, ((4, 4),))))
    for name in RUNNABLE - RUNNABLE_PRODUCTS:
        shapes = ((4, 4),) * (2 if name in RUNNABLE_BINARY else 1)
        forms_of(ALL["narrower-type"], Case(name, shapes, "float64"), "cpu")[0]()


@pytest.mark.parametrize(
    ("experiment", "reason"),
    [
        (Experiment("format-the-disk", (LINEAR,)), "no experiment is called"),
        (Experiment("narrower-type", (), to="float32"), "nothing to run"),
        (Experiment("narrower-type", (LINEAR,), to="float8"), "no type is called"),
        (Experiment("reduced-precision", (LINEAR,), to="float8"), "no reduced precision is called"),
        (Experiment("channels-last", (LINEAR,)), "no channels to put last"),
        (Experiment("channels-last", (replace(POOLING, shapes=((2, 6, 6),)),)), "no channels to put last"),
        (Experiment("channels-last", (replace(POOLING, arguments=("", "?")),)), "settings of max_pool2d"),
        (Experiment("narrower-type", (Case("load", ((4,),)),), to="float32"), "no experiment knows 'load'"),
        (Experiment("narrower-type", (Case("relu", ()),), to="float32"), "not complete"),
        (Experiment("narrower-type", (Case("relu", ((-1,),)),), to="float32"), "not complete"),
        (Experiment("narrower-type", (Case("relu", ((1 << 40, 1 << 40),)),), to="float32"), "more memory"),
        (Experiment("narrower-type", (Case("conv2d", CONV.shapes),), to="float32"), "not recorded"),
        (Experiment("fused-attention", (Case("x", ((2, 1 << 20, 4),) * 3),), count=2), "more memory"),
        (Experiment("fused-attention", (Case("x", ((8, 4),) * 3),)), "not complete"),
        (Experiment("fused-optimizer", (Case("LBFGS", ((4,),)),), to="fused"), "no experiment knows the optimizer"),
        (Experiment("batched-products", (replace(LINEAR, dtype="float32"),), count=10**9), "not complete"),
        (Experiment("batched-products", (CONV,), count=3), "with a batch dimension"),
        (Experiment("narrower-type", (Case("mm", ((4, 8), (4, 8))),), to="float64"), "shapes cannot be multiplied"),
    ],
)
def test_an_experiment_that_cannot_run_says_why(experiment, reason):
    found = answer(experiment, "cpu")
    assert found.measurement is None
    assert reason in found.failed


def test_turns_alternate_and_are_bounded(monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(experiments, "_time", lambda call, *_: call() or 1e9)
    turns = take_turns(lambda: calls.append("A"), lambda: calls.append("B"), 0.0, "cpu")
    assert "".join(calls) == "AB" * (2 + 5)
    assert turns.undisturbed() == (1e9, 1e9)


def test_a_shorter_call_is_repeated_until_its_turn_is_as_long(monkeypatch):
    asked: list[tuple[str, int]] = []

    def clock(call: str, repeats: int, *_: object) -> float:
        asked.append((call, repeats))
        return {"long": 20e6, "short": 4e6}[call]

    monkeypatch.setattr(experiments, "_time", clock)
    take_turns("long", "short", 0.0, "cpu")
    assert asked[:4] == [("long", 1), ("short", 1)] * 2
    assert asked[4:] == [("long", 1), ("short", 5)] * 5


def test_calls_that_take_too_long_are_given_up(monkeypatch):
    monkeypatch.setattr(experiments, "_LONGEST_S", -1.0)
    assert "too long" in answer(ALL["narrower-type"], "cpu").failed


def test_the_range_leaves_out_the_outermost_rounds(monkeypatch):
    turns = experiments.Turns([10.0] * 11, [float(n) for n in range(11)])
    assert turns.ratios() == (0.1, 0.9)


def test_the_time_of_a_form_is_that_of_its_shorter_turns():
    """It is the second shortest of eleven: most were disturbed, and the shortest may be chance."""
    turns = experiments.Turns([9.0, 10.0] + [30.0] * 9, [float(n) for n in range(11)])
    assert turns.undisturbed() == (10.0, 1.0)


class Crowded:
    """A machine on which the thread waits most of the time: each call takes 1 ms and its wait as the clock says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, second_ms: list[float], first_ms: float = 1.0) -> None:
        self.now_ns = self.waited_ns = 0
        self._second, self._first_ms, self._calls = cycle(second_ms), first_ms, 0
        monkeypatch.setattr(experiments, "count_crowded_ns", lambda: self.waited_ns)
        monkeypatch.setattr(experiments.time, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(experiments.time, "perf_counter", lambda: self.now_ns / 1e9)
        monkeypatch.setattr(experiments, "forms_of", lambda *_: (self.first, self.second))

    def first(self) -> None:
        self._pass(self._first_ms)

    def second(self) -> None:
        self._pass(next(self._second))

    def _pass(self, ms: float) -> None:
        self._calls += 1
        waited_ns = (1 + self._calls % 7) * 1_000_000
        self.waited_ns += waited_ns
        self.now_ns += round(ms * 1e6) + waited_ns


def test_on_a_crowded_machine_waits_are_left_out_of_each_turn(monkeypatch):
    Crowded(monkeypatch, [0.4, 0.5, 0.6])
    threads = torch.get_num_threads()
    found = answer(ALL["narrower-type"], "cpu").measurement
    assert found is not None
    assert found.factor == pytest.approx(0.5, abs=0.02)
    assert found.low == pytest.approx(0.4, abs=0.01)
    assert found.high == pytest.approx(found.factor / 0.8, abs=0.01)
    assert found.first_ns == pytest.approx(1e6 * sum(case.calls for case in ALL["narrower-type"].cases))
    assert 0.5 < found.waited < 1
    assert torch.get_num_threads() == threads


def test_rounds_that_differ_too_much_say_nothing(monkeypatch):
    Crowded(monkeypatch, [0.1] * 9 + [4.0] * 9)
    assert "the rounds differ too much" in answer(ALL["narrower-type"], "cpu").failed


@pytest.mark.parametrize(("kind", "device"), [("fewer-threads", "cpu"), ("narrower-type", "cuda")])
def test_where_one_thread_shows_nothing_a_crowded_machine_is_not_measured(kind, device, monkeypatch):
    Crowded(monkeypatch, [0.5])
    monkeypatch.setattr(experiments, "_wait_for", lambda _: None)
    assert answer(ALL[kind], device).failed == "other programs had the processor for most of the time"


@pytest.mark.parametrize("count", [0, None])
def test_a_machine_that_is_not_crowded_or_does_not_say_is_measured(count, monkeypatch):
    monkeypatch.setattr(experiments, "count_crowded_ns", lambda: count)
    assert answer(ALL["narrower-type"], "cpu").measurement is not None


def test_cases_are_weighted_by_their_calls_per_step(monkeypatch):
    """Two calls of the first case and one of the second: 2 x 10 + 100 against 2 x 5 + 90."""
    both = iter([experiments.Turns([10.0], [5.0]), experiments.Turns([100.0], [90.0])])
    monkeypatch.setattr(experiments, "take_turns", lambda *_: next(both))
    found = run(ALL["narrower-type"], "cpu")
    assert (found.factor, found.first_ns, found.second_ns) == (100 / 120, 120, 100)


def test_only_the_machine_of_the_recording_answers():
    here = Request("cpu", processor_name(), 1, ())
    assert choose_device(here) == "cpu"
    for other, reason in [
        (replace(here, processor="Z80"), "another processor, Z80"),
        (replace(here, processor=""), "does not say"),
        (replace(here, device="Tesla T4"), "no Tesla T4 in this machine"),
        (replace(here, device=""), "no such GPU"),
    ]:
        with pytest.raises(CannotRun, match=reason):
            choose_device(other)


def test_each_form_sets_its_own_number_of_threads():
    before = torch.get_num_threads()
    try:
        seen = []
        for form in forms_of(ALL["fewer-threads"], LINEAR, "cpu"):
            form()
            seen.append(torch.get_num_threads())
        assert seen == [2, 1]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("to", "count"), [("0", 2), ("3", 2), ("-1", 2), ("1", 5000), ("", 2), ("1e3", 2)])
def test_impossible_numbers_of_threads_are_refused(to, count):
    with pytest.raises(CannotRun):
        forms_of(replace(ALL["fewer-threads"], to=to, count=count), LINEAR, "cpu")
