"""Products in full float32 on CPUs and GPUs that have a faster type, and where nothing can be gained or is known."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.diagnosis.pipeline import diagnose
from profkit.rules.base import CannotLook, Need, Suspicion, missing_needs
from profkit.rules.full_precision_matmul import full_precision_matmul
from profkit.run.directory import CallSite, Host, Rates, Run
from profkit.run.experiment import Case
from profkit.savings.simulate import predict_saving
from tests.traces import facts_of, kernel, mark, op, runtime, step

Json = dict[str, Any]
DIMS = [[128, 128], [128, 128]]
"""4.2 million operations. The two inputs and the result have 64 KiB each."""
RATES = Rates("cpu", 6.5536e10, {"float32": 4.194304e11, "bfloat16": 1.6777216e12})


def host(bfloat16: bool | None = True, rates: Rates | None = RATES) -> Run:
    return Run(device="cpu", host=Host(2, 1, 1 << 30, "a processor", bfloat16), rates=rates)


def find(facts) -> list[Suspicion]:
    return list(full_precision_matmul.check(facts))


def product(at: float = 10, duration: float = 60, dims: Any = DIMS, kind: str = "float", name: str = "mm") -> Json:
    return op(f"aten::{name}", at, duration, dims=dims, types=[kind, kind], concrete=["", ""], sequence=3)


def recording(events: list[Json], run: Run | None = None, count: int = 4, **more: Any) -> Any:
    """Steps of 100 µs with these events in each."""
    moved = [{**event, "ts": event["ts"] + 100 * i} for i in range(count) for event in events]
    return facts_of([*(step(i, 100 * i, 100) for i in range(count)), *moved], run=run, **more)


def test_on_a_cpu_rates_alone_give_no_price():
    (found,) = find(recording([product()], host()))
    assert found.edit is None
    assert "--measure" in found.unpriced


def test_products_inside_a_compiled_region_are_reported():
    region = [op("Torch-Compiled Region: 0/0", 5, 90), op("CompiledFunction", 6, 80)]
    (found,) = find(recording([*region, product()], host()))
    assert (found.count, len(found.rows)) == (1, 4)


def test_backward_nodes_keep_the_same_share_as_forward_products():
    node = op("autograd::engine::evaluate_function: MmBackward0", 75, 20, sequence=3)
    facts = recording([product(), node, op("MmBackward0", 76, 18, sequence=3)], host())
    (found,) = find(facts)
    assert predict_saving(facts, found.trial.edit_of(0.7)).fraction == pytest.approx(0.8 * 0.3, abs=1e-3)


def test_without_rates_the_finding_has_an_experiment_and_no_price():
    facts = recording([product()], host(rates=None))
    (found,) = find(facts)
    assert found.edit is None
    assert "--measure" in found.unpriced
    assert found.trial is not None
    experiment = found.trial.experiment
    assert (experiment.kind, experiment.to, experiment.backward) == ("reduced-precision", "bfloat16", False)
    assert experiment.cases == (Case("mm", ((128, 128), (128, 128)), "float32", 1.0, ("", ""), 60_000.0),)
    assert predict_saving(facts, found.trial.edit_of(0.5)).fraction == pytest.approx(0.3)


def test_without_rates_the_report_says_that_it_has_to_be_measured():
    found = diagnose(recording([product()], host(rates=None)))
    assert "full-precision-matmul" in found.skipped
    assert "full-precision-matmul" not in [finding.rule for finding in found.findings]


@pytest.mark.parametrize(
    ("run", "reason"),
    [(host(False), "no instructions for bfloat16"), (host(None), "does not say"), (Run(), "does not say")],
)
def test_it_cannot_look_without_a_cpu_known_to_have_bfloat16_instructions(run, reason):
    with pytest.raises(CannotLook, match=reason):
        find(recording([product()], run))


def test_a_program_without_products_is_silent_on_any_cpu():
    assert find(recording([op("aten::relu", 10, 60, dims=[[4096]], types=["float"])], host(False))) == []


@pytest.mark.parametrize("kind", ["double", "c10::BFloat16", "c10::Half"])
def test_products_of_other_types_are_silent(kind):
    assert find(recording([product(kind=kind)], host())) == []


def test_a_product_that_autocast_casts_is_silent():
    inner = product(at=20, duration=40, kind="c10::BFloat16")
    assert find(recording([product(name="matmul"), inner], host())) == []


@pytest.mark.parametrize(("rows", "reported"), [(128, 1), (100, 0)])
def test_products_below_four_million_operations_are_silent(rows, reported):
    assert len(find(recording([product(dims=[[rows, 128], [128, 128]])], host()))) == reported


@pytest.mark.parametrize(("duration", "reported"), [(10.2, 1), (9.8, 0)])
def test_products_below_a_tenth_of_the_step_are_silent(duration, reported):
    assert len(find(recording([product(duration=duration)], host()))) == reported


@pytest.mark.parametrize(("times", "reported"), [(2, 1), (1, 0)])
def test_products_in_fewer_than_half_of_the_steps_are_silent(times, reported):
    rest = [op("aten::relu", 100 * i + 90, 5, dims=[[4]], types=["float"]) for i in range(4)]
    events = [{**product(), "ts": 10 + 100 * i} for i in range(times)]
    facts = facts_of([*(step(i, 100 * i, 100) for i in range(4)), *events, *rest], run=host())
    assert len(find(facts)) == reported


def test_the_line_that_takes_the_most_time_is_reported_first():
    sites = tuple(CallSite("a.py", line, "f") for line in (10, 20))
    both = [product(5, 20), product(40, 50)]
    first = [step(0, 0, 100), mark(0, 2, 30), mark(1, 38, 60), *both]
    later = [{**event, "ts": event["ts"] + 100 * i} for i in (1, 2) for event in both]
    facts = facts_of([*first, step(1, 100, 100), step(2, 200, 100), *later], run=host(), callsites=sites)
    (found,) = find(facts)
    assert found.location is not None
    assert (found.location.line, [place.line for place in found.also]) == (20, [10])


GPU = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]
WIDE = "ampere_sgemm_128x64_tn"


def launches(name: str) -> list[Json]:
    """Each step launches one product and waits for its kernel of 60 µs."""
    events = []
    for i in range(4):
        at = 100 * i
        events += [
            step(i, at, 100),
            product(at + 5, 20),
            runtime("cudaLaunchKernel", at + 10, 5, correlation=i + 1),
            kernel(name, at + 20, 60, correlation=i + 1),
            runtime("cudaDeviceSynchronize", at + 30, 52),
        ]
    return events


def on_gpu(name: str = WIDE, devices: Any = GPU, **flags: Any) -> Any:
    return facts_of(launches(name), run=Run(flags=flags), deviceProperties=devices)


def test_float32_kernels_keep_the_share_of_their_time_that_tf32_needs():
    """It is bound by memory in TF32 (196,608 bytes at 2039 GB/s) and by arithmetic in float32 (19.5 TFLOP/s)."""
    facts = on_gpu()
    (found,) = find(facts)
    kept = (196_608 / 2.039e12) / (4_194_304 / 19.5e12)
    assert "TF32" in found.message
    assert found.edit is not None
    assert found.edit.work_kept_ns.tolist() == [int(60_000 * kept)] * 4
    assert found.trial is not None
    assert found.trial.experiment.to == "tf32"


@pytest.mark.parametrize("name", ["ampere_s1688gemm_128x128_tn", "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "reduce"])
def test_kernels_that_use_tf32_or_compute_no_product_are_silent(name):
    assert find(on_gpu(name)) == []


@pytest.mark.parametrize(
    ("flags", "reported"),
    [({"matmul_precision": "high"}, 0), ({"matmul_precision": "highest"}, 1), ({"cudnn_tf32": True}, 1)],
)
def test_products_are_silent_when_tf32_is_already_allowed(flags, reported):
    assert len(find(on_gpu(**flags))) == reported


LARGE = [[4096, 4096], [4096, 4096]]
CONVOLUTION = [[64, 64, 56, 56], [64, 64, 3, 3], []]


def several(*names: str, dims: Any = LARGE, run: Run | None = None, devices: Any = GPU) -> Any:
    """Steps with one product for each of ``names``, whose kernel takes 1000 µs. The host waits for the kernels."""
    events = []
    for i in range(4):
        at, length = 10_000 * i, 1000 * len(names) + 100
        events += [step(i, at, length), runtime("cudaDeviceSynchronize", at + 95, length - 100)]
        for k, kernel_name in enumerate(names):
            launch, types = 10 * i + k + 1, ["float", "float"]
            name = "conv2d" if dims is CONVOLUTION else "mm"
            settings = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
            events += [
                op(f"aten::{name}", at + 20 * k, 10, dims=dims, types=types, concrete=settings),
                runtime("cudaLaunchKernel", at + 20 * k + 2, 5, correlation=launch),
                kernel(kernel_name, at + 1000 * k + 60, 1000, correlation=launch),
            ]
    return facts_of(events, run=run, deviceProperties=devices)


def test_without_settings_a_tf32_kernel_shows_that_tf32_is_allowed():
    """The library itself then chose the float32 kernel."""
    assert [found.joint is None for found in find(several(WIDE, WIDE))] == [True, False]
    (found,) = find(several(WIDE, "ampere_s1688gemm_128x128_tn"))
    assert "as fast as TF32" in found.message


def test_a_recorded_setting_outweighs_tf32_kernels():
    found = find(several(WIDE, "ampere_s1688gemm_128x128_tn", run=Run(flags={"matmul_precision": "highest"})))
    assert "full float32" in found[0].message


def test_bfloat16_is_priced_on_top_of_tf32_and_with_its_casts():
    tf32, bfloat16 = find(several(WIDE))
    full = 2 * 4096**3 / 19.5e12
    casts = 3 * 4096**2 * 6 / 2.039e12
    kept_by_tf32, kept = 2 * 4096**3 / 156e12 / full, (2 * 4096**3 / 312e12 + casts) / full
    assert tf32.edit is not None
    assert tf32.edit.work_kept_ns[0] == pytest.approx(1e6 * kept_by_tf32, rel=1e-4)
    assert bfloat16.joint is not None
    assert bfloat16.joint.work_kept_ns[0] == pytest.approx(1e6 * kept, rel=1e-4)
    assert bfloat16.part == pytest.approx((kept_by_tf32 - kept) / (1 - kept), abs=0.002)
    assert ("on top of that of TF32" in bfloat16.fix, "on top of" in tf32.fix) == (True, False)


def test_for_products_in_tf32_only_bfloat16_is_reported():
    (found,) = find(several("ampere_s1688gemm_128x128_tn", dims=[[4096, 4096], [4096, 4096]]))
    kept = 0.5 + 3 * 4096**2 * 6 / 2.039e12 / (2 * 4096**3 / 156e12)
    assert found.joint is not None
    assert found.joint.work_kept_ns[0] == pytest.approx(1e6 * kept, rel=1e-3)
    assert (found.part, "on top of" in found.fix) == (1.0, False)


@pytest.mark.parametrize(("size", "reported"), [(1024, 0), (4096, 1)])
def test_bfloat16_is_silent_when_its_casts_take_as_long_as_it_saves(size, reported):
    assert len(find(several("ampere_s1688gemm_128x128_tn", dims=[[size, size], [size, size]]))) == reported


@pytest.mark.parametrize(("columns", "share"), [(4096, 1.0), (4097, 0.116 * 312 / 156)])
def test_a_misaligned_product_reaches_a_fraction_of_the_tf32_rate(columns, share):
    """A vocabulary of 50,257 is such a case. Kernels that load single elements reach 0.116 of the bfloat16 rate."""
    found = find(several(WIDE, dims=[[4096, 4096], [4096, columns]]))[0]
    assert found.edit is not None
    assert found.edit.work_kept_ns[0] == pytest.approx(1e6 * 19.5 / 156 / share, rel=1e-3)


def test_products_bound_by_memory_are_silent():
    """The product writes 8192 x 8192 elements and takes 32 operations for each."""
    assert find(several(WIDE, dims=[[8192, 16], [16, 8192]])) == []


@pytest.mark.parametrize(
    ("others", "flags", "reported"),
    [
        pytest.param((), {}, 1, id="all convolutions multiply in float32"),
        pytest.param((), {"cudnn_tf32": False}, 1, id="and a setting forbids TF32"),
        pytest.param((), {"cudnn_tf32": True}, 0, id="though a setting allows it"),
        pytest.param(("sm80_xmma_fprop_implicit_gemm_tf32f32",), {}, 0, id="where another is in TF32"),
    ],
)
def test_float32_convolutions_are_silent_when_tf32_is_allowed(others, flags, reported):
    facts = several("void implicit_convolve_sgemm<float, 128>", *others, dims=CONVOLUTION, run=Run(flags=flags))
    assert len([found for found in find(facts) if "full float32" in found.message]) == reported


@pytest.mark.parametrize(
    ("name", "times", "bandwidth"), [("Tesla V100-SXM2-16GB", 125 / 15.7, 0.9e12), ("Tesla T4", 65 / 8.1, 0.32e12)]
)
def test_tensor_cores_without_tf32_are_told_with_float16(name, times, bandwidth):
    facts = several(WIDE, dims=[[4096, 4096], [4096, 4096]], devices=[{"id": 0, "name": name}])
    (found,) = find(facts)
    assert (
        f"multiplies float16 {times:.2g} times as fast as float32; that would keep 11 of the 24 bits" in found.message
    )
    assert "GradScaler" in found.fix
    assert found.joint is not None
    wide_rate = {"Tesla V100-SXM2-16GB": 15.7e12, "Tesla T4": 8.1e12}[name]
    kept = 1 / times + 3 * 4096**2 * 6 / bandwidth / (2 * 4096**3 / wide_rate)
    assert found.joint.work_kept_ns[0] == pytest.approx(1e6 * kept, rel=1e-3)


def convolving(**more: Any) -> Any:
    """Each step launches one convolution and waits for it: 3 x 3 weights for 64 channels, on 32 images of 56 x 56."""
    dims = [[32, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], []]
    of_product = op("aten::conv2d", 5, 20, dims=dims, types=["float", "float", "", "", "", "", ""], **more)
    events = [
        {**of_product, "ts": event["ts"]} if event["name"] == "aten::mm" else event for event in launches("scudnn")
    ]
    return facts_of(events, deviceProperties=[{"id": 0, "name": "Tesla V100-DGXS-32GB"}])


def test_convolutions_without_recorded_stride_count_as_if_they_kept_the_size():
    """PyTorch before 2.1 records the shapes alone."""
    settings = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    (guessed,), (known,) = find(convolving()), find(convolving(concrete=settings))
    assert guessed.joint is not None
    assert known.joint is not None
    assert guessed.joint.work_kept_ns.tolist() == known.joint.work_kept_ns.tolist()
    assert (guessed.joint.uncertainty, known.joint.uncertainty) == (0.5, 0.3)


def test_without_types_it_cannot_look():
    events = [
        {**event, "args": {k: v for k, v in event["args"].items() if k != "Input type"}} for event in launches(WIDE)
    ]
    with pytest.raises(CannotLook, match="no types"):
        find(facts_of(events, deviceProperties=GPU))


def test_a_gpu_of_which_no_shorter_type_is_faster_is_silent():
    rates = Rates("GPU of 2016", 732e9, {"float32": 9.3e12, "float64": 4.7e12})
    facts = several(WIDE, devices=[{"id": 0, "name": "GPU of 2016"}], run=Run(rates=rates))
    assert find(facts) == []


def test_it_cannot_look_at_an_unknown_gpu():
    with pytest.raises(CannotLook, match="no data sheet"):
        find(on_gpu(devices=[{"id": 0, "name": "Mystery 9000"}]))


def test_without_shapes_it_cannot_look():
    facts = facts_of([step(0, 0, 100), op("aten::mm", 10, 60)])
    assert Need.SHAPES in missing_needs(facts, full_precision_matmul.needs)
