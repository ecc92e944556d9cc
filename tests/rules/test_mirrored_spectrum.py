"""Whole spectra of real signals, and spectra that are no mirror."""

from __future__ import annotations

import pytest

from profkit.rules.base import Need, Suspicion, missing_needs
from profkit.rules.mirrored_spectrum import mirrored_spectrum
from profkit.savings.simulate import predict_saving
from tests.rules.shaped_steps import Json, steps_of
from tests.traces import facts_of, op, step

REAL, COMPLEX = "float", "c10::complex<float>"
SIGNAL, KERNEL, SPECTRUM, RESPONSE = [8, 512], [512], [8, 1024], [1024]


def find(*events: Json) -> list[Suspicion]:
    return list(mirrored_spectrum.check(facts_of(steps_of(*events, length_us=400))))


def call(name: str, at: float, duration: float, *shapes: list[int], types: str = REAL, given: tuple[str, ...] = ()):
    concrete = [*[""] * len(shapes), *given]
    dims = [*shapes, *[[]] * len(given)]
    return op(
        f"aten::{name}", at, duration, dims=dims, types=[types] * len(shapes) + [""] * len(given), concrete=concrete
    )


def fft(shape: list[int], at: float, *, types: str = REAL, length: str = "1024") -> Json:
    return call("fft_fft", at, 40, shape, types=types, given=(length, "-1", ""))


BOTH = [fft(SIGNAL, 10), fft(KERNEL, 60)]
PRODUCT = call("mul", 110, 40, SPECTRUM, RESPONSE, types=COMPLEX)
BACK = call("fft_ifft", 160, 40, SPECTRUM, types=COMPLEX, given=("", "-1", ""))
MADE_REAL = call("real", 210, 2, SPECTRUM, types=COMPLEX)


def test_a_filter_takes_half_of_its_spectra():
    """Of two transforms of 40 µs three quarters stay, of the product, the transform back and the view a half."""
    facts = facts_of(steps_of(*BOTH, PRODUCT, BACK, MADE_REAL, length_us=400))
    (found,) = mirrored_spectrum.check(facts)
    assert found.message == (
        "2 transforms a step compute the whole spectrum of real signals. One half of it mirrors the other."
    )
    assert found.evidence == {"transforms_per_step": 2}
    assert predict_saving(facts, found.edit).time_ns_per_step == 20_000 + 20_000 + 20_000 + 1_000


def test_a_spectrum_with_one_more_dimension_of_one_is_the_same():
    prepared = call("unsqueeze", 102, 2, RESPONSE, types=COMPLEX)
    product = call("mul", 110, 40, SPECTRUM, [1, *RESPONSE], types=COMPLEX)
    assert len(find(*BOTH, prepared, product, BACK, MADE_REAL)) == 1


def test_transforms_back_along_two_dimensions_win_nothing():
    image = [8, 64, 64]
    there = call("fft_fft2", 10, 100, image, given=("", "[-2, -1]", ""))
    back = call("fft_ifft2", 160, 100, image, types=COMPLEX, given=("", "[-2, -1]", ""))
    facts = facts_of(steps_of(there, back, call("real", 270, 2, image, types=COMPLEX), length_us=400))
    (found,) = mirrored_spectrum.check(facts)
    assert predict_saving(facts, found.edit).time_ns_per_step == 40_000 + 1_000


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([call("abs", 110, 40, SPECTRUM, types=COMPLEX)], id="magnitudes"),
        pytest.param(
            [BACK, call("slice", 202, 2, SPECTRUM, types=COMPLEX), call("real", 210, 2, [8, 512], types=COMPLEX)],
            id="a slice before the real part",
        ),
        pytest.param(
            [call("slice", 60, 20, SPECTRUM, types=COMPLEX), call("abs", 110, 40, [8, 512], types=COMPLEX)],
            id="magnitudes of one half",
        ),
    ],
)
def test_other_uses_of_the_half_are_told(rest):
    assert len(find(fft(SIGNAL, 10), *rest)) == 1


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([fft(SIGNAL, 10, types=COMPLEX)], id="complex signals"),
        pytest.param([fft(SIGNAL, 10), BACK, call("abs", 210, 9, SPECTRUM, types=COMPLEX)], id="an envelope"),
        pytest.param([fft(SIGNAL, 10), BACK], id="nobody knows what becomes of it"),
        pytest.param(
            [fft(SIGNAL, 10), call("mul", 110, 40, SPECTRUM, [1, 1024], types=COMPLEX), BACK, MADE_REAL],
            id="weights of its own",
        ),
        pytest.param(
            [
                fft(SIGNAL, 10),
                call("slice", 60, 2, SPECTRUM, types=COMPLEX),
                call("einsum", 110, 40, [8, 64], [64, 64], types=COMPLEX),
                BACK,
                MADE_REAL,
            ],
            id="weights for a part of it",
        ),
        pytest.param([call("fft_rfft", 10, 40, SIGNAL, given=("1024", "-1", ""))], id="half of it already"),
        pytest.param([fft(SIGNAL, 10, length="1024]["), PRODUCT], id="damage"),
    ],
)
def test_spectra_that_are_no_mirror_are_silent(events):
    assert find(*events) == []


def test_small_transforms_are_no_matter():
    assert find({**fft(SIGNAL, 10), "dur": 9}) == []


def test_without_shapes_the_rule_does_not_look():
    facts = facts_of([step(0, 0, 100), op("aten::fft_fft", 10, 40)])
    assert Need.SHAPES in missing_needs(facts, mirrored_spectrum.needs)
