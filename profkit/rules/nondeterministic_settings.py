"""A program asks for the same numbers in every run, and does not get them.

What it detects
Only programs that ask for reproducible runs: they seed random numbers, or set `torch.backends.cudnn.deterministic`.
Reported are random numbers of PyTorch, NumPy or Python's `random` that such a program draws without a seed, while it
seeds others; `torch.backends.cudnn.benchmark` beside `cudnn.deterministic`; and, with `cudnn.deterministic` on and
`torch.use_deterministic_algorithms` off, operators on a GPU that add up in no fixed order. A program that seeds nothing
is not reported: nobody said that its runs should be alike.

Why is this bad?
Two runs differ although somebody took care that they do not, so a change that made a result better or worse cannot be
told from chance. It costs no time: this is for information. `profkit verify --twice train.py` runs a program twice and
names the first tensor that differs.

Example
    torch.manual_seed(0)
    noise = np.random.rand(64)

Use instead
    torch.manual_seed(0)
    np.random.seed(0)
    noise = np.random.rand(64)

How the saving is estimated
There is none: neither time nor memory changes. Deterministic algorithms may take longer.
"""

from __future__ import annotations

from collections.abc import Iterator

from profkit.patterns import Places, named_operators, remarked
from profkit.rules.base import CannotLook, Facts, Kind, Severity, Suspicion, Suspicions, format_count, rule
from profkit.source.randomness.seeds import NUMPY, PYTHON, TORCH
from profkit.source.remark_kinds import DRAWS, SEEDS

_SEED = {TORCH: "`torch.manual_seed(0)`", NUMPY: "`numpy.random.seed(0)`", PYTHON: "`random.seed(0)`"}
_UNORDERED = (
    "aten::index_add_",
    "aten::scatter_add_",
    "aten::scatter_reduce_",
    "aten::_embedding_bag_dense_backward",
    "aten::upsample_bilinear2d_backward",
    "aten::upsample_bicubic2d_backward",
    "aten::upsample_nearest2d_backward",
    "aten::_adaptive_avg_pool2d_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::max_pool3d_with_indices_backward",
    "aten::reflection_pad2d_backward",
    "aten::replication_pad2d_backward",
    "aten::grid_sampler_2d_backward",
    "aten::_ctc_loss_backward",
)
"""On CUDA these add with atomic operations (documentation of ``torch.use_deterministic_algorithms``)."""


@rule(Kind.FAULT)
def nondeterministic_settings(facts: Facts) -> Suspicions:
    """One finding for unseeded random numbers, one for the settings of cuDNN, and one for the operators."""
    if facts.run.torch is None:
        raise CannotLook("what the program sets was not recorded (run the program under profkit)")
    yield from _unseeded(facts)
    if facts.device.present and facts.run.flags.get("cudnn_deterministic") is True:
        yield from _contradicting(facts)


def _unseeded(facts: Facts) -> Iterator[Suspicion]:
    seeds = {whose: remarked(facts, SEEDS[whose]) for whose in SEEDS}
    draws = {whose: remarked(facts, DRAWS[whose]) for whose in DRAWS}
    missing = [whose for whose, lines in draws.items() if lines and not seeds[whose]]
    given = [whose for whose, lines in seeds.items() if lines]
    if not given or not missing:
        return
    lines = [line for whose in missing for line in draws[whose]]
    yield Suspicion(
        message=f"Two runs differ: the random numbers of {_listed(missing)} are drawn without a seed, at "
        f"{format_count(len(lines), 'line')}. Only those of {_listed(given)} are seeded.",
        fix=f"Seed these too, before the model and the data are made: {_listed([_SEED[whose] for whose in missing])}.",
        places=Places.of([*lines, *(line for whose in given for line in seeds[whose])]),
        severity=Severity.INFO,
        confidence=0.8,
        count=len(lines),
        evidence={"lines_without_a_seed": len(lines)},
    )


def _contradicting(facts: Facts) -> Iterator[Suspicion]:
    flags = facts.run.flags
    if flags.get("cudnn_benchmark") is True:
        yield Suspicion(
            message="`torch.backends.cudnn.benchmark` is on beside `cudnn.deterministic`: the fastest algorithm "
            "differs from run to run. So do the last bits of a convolution.",
            fix="Set `torch.backends.cudnn.benchmark = False`, or give up `cudnn.deterministic`.",
            severity=Severity.INFO,
            count=1,
        )
    names = [name for name in _UNORDERED if (facts.measured & named_operators(facts, name)).any()]
    if names and flags.get("deterministic_algorithms") is False:
        yield Suspicion(
            message=f"`cudnn.deterministic` is on, but {_listed(names)} still {'adds' if len(names) == 1 else 'add'} "
            "up in no fixed order: the setting covers only convolutions.",
            fix=(
                "Call `torch.use_deterministic_algorithms(True)`: it picks a form with a fixed order, or names what "
                "has none."
            ),
            rows=(facts.measured & named_operators(facts, *names)).nonzero()[0],
            severity=Severity.INFO,
            count=len(names),
        )


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
