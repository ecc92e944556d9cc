"""What the kernels of a step do, family by family."""

from __future__ import annotations

import pytest

from profkit.derive.device.kernel_families import Family
from profkit.diagnosis.pipeline import diagnose
from profkit.findings.values import KernelFamily
from profkit.patterns.time.kernels import kernel_families
from tests.traces import facts_of, kernel, op, runtime, step


def one_step(at: float):
    works = [("ampere_sgemm_128x64_tn", 30), ("nvjet_sm90_tst_64x8", 20), ("vectorized_elementwise_kernel<4>", 10)]
    events = [step(int(at // 200), at, 190), op("aten::mm", at, 50)]
    start, number = at + 10, 1 + int(at)
    for place, (name, lasts) in enumerate(works):
        correlation = number + place
        events += [runtime("cudaLaunchKernel", at + 2 + 5 * place, 2, correlation=correlation)]
        events += [kernel(name, start, lasts, correlation=correlation)]
        start += lasts
    return events


def test_families_have_their_time_in_a_step_and_their_share_of_all_kernels():
    products, elementwise = kernel_families(facts_of([*one_step(0), *one_step(200), *one_step(400)]))
    assert (products.family, elementwise.family) == (Family.PRODUCT, Family.ELEMENTWISE)
    assert products.fraction == pytest.approx(50 / 60)
    assert products.code_fraction == pytest.approx(30 / 60)
    assert elementwise.fraction == elementwise.code_fraction == pytest.approx(10 / 60)
    assert products.count == pytest.approx(2, rel=0.1)
    assert products.step_ns == pytest.approx(50_000, rel=0.1)


def test_without_kernels_there_is_nothing_to_tell():
    assert kernel_families(facts_of([step(0, 0, 100), op("aten::mm", 0, 50)])) == ()


def test_the_diagnosis_has_them():
    facts = facts_of([*one_step(0), *one_step(200), *one_step(400)])
    first, second = diagnose(facts).kernels
    assert isinstance(first, KernelFamily)
    assert (first.family, first.name, second.family) == ("matrix products", "ampere_sgemm_128x64_tn", "elementwise")
