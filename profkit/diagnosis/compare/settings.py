"""What differs between two sides besides the program's own work, and whether they can still be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profkit.derive.steps.boundaries import UNDIVIDED
from profkit.diagnosis.compare.comparison import Difference
from profkit.diagnosis.compare.recorded import Recorded
from profkit.diagnosis.compare.same_program import program_name
from profkit.run.directory import Run

_MAX_TEXT = 60
"""Two values and the setting's name share a line or two of the report."""
_SHAPES = "shapes of inputs"
_PROGRAM = "program"


def find_differences(before: Sequence[Recorded], after: Sequence[Recorded]) -> tuple[Difference, ...]:
    """All differences, those that forbid a comparison first. The first run represents a side."""
    a, b = before[0], after[0]
    found = [*_steps(a, b), *_machines(a, b), *_programs(a.run, b.run), *_flags(a.run, b.run), *_shapes(a, b)]
    found += [*_within(before, "before"), *_within(after, "after")]
    return tuple(sorted(found, key=lambda difference: not difference.blocks))


def same_settings(differences: Sequence[Difference]) -> bool:
    """Whether equal operators should take equal time on both sides: at most the inputs' shapes or the script's name
    differ."""
    return all(difference.what in (_SHAPES, _PROGRAM) for difference in differences)


def _differ(what: str, before: object, after: object, blocks: bool = False) -> Iterator[Difference]:
    if before != after:
        yield Difference(what, _text(before), _text(after), blocks)


def _text(value: object) -> str:
    return "unknown" if value is None else str(value)


def _known(what: str, before: object, after: object) -> Iterator[Difference]:
    """A difference only if both sides are known: an unknown value may be the same."""
    if before is not None and after is not None:
        yield from _differ(what, before, after)


def _steps(a: Recorded, b: Recorded) -> Iterator[Difference]:
    """Steps that end at different events are different things."""
    yield from _differ("what ends a step", a.step_source, b.step_source, blocks=True)
    if a.step_source == b.step_source and a.step_source in UNDIVIDED:
        yield Difference("steps", "none were found", "none were found", True)


def _machines(a: Recorded, b: Recorded) -> Iterator[Difference]:
    one, other = a.diagnosis.run, b.diagnosis.run
    yield from _known("device", one.device, other.device)
    yield from _known("torch", one.torch, other.torch)
    yield from _known("Python", one.python, other.python)
    if a.run.host is not None and b.run.host is not None:
        yield from _differ("CPUs", a.run.host.cpus, b.run.host.cpus)
        yield from _differ("threads of PyTorch", a.run.host.torch_threads, b.run.host.torch_threads)


def _programs(a: Run, b: Run) -> Iterator[Difference]:
    if not (a.command and b.command):
        return
    yield from _known(_PROGRAM, program_name(a), program_name(b))
    for what in ("batch_size", "workers"):
        one, other = (_listed([getattr(use, what) for use in run.loaders]) for run in (a, b))
        yield from _differ(f"{what} of the DataLoader", one, other)
    one, other = (_listed([use.name for use in run.optimizers]) for run in (a, b))
    yield from _differ("optimizers", one, other)


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values)) or "none"


def _flags(a: Run, b: Run) -> Iterator[Difference]:
    """Settings of PyTorch. If only one side recorded a setting, it counts if it is an environment variable, which was
    unset on the other side."""
    for name in sorted({*a.flags, *b.flags} if a.flags and b.flags else ()):
        if name.startswith("env:"):
            yield from _differ(name.removeprefix("env:"), a.flags.get(name, "not set"), b.flags.get(name, "not set"))
        else:
            yield from _known(name, a.flags.get(name), b.flags.get(name))


def _shapes(a: Recorded, b: Recorded) -> Iterator[Difference]:
    """Kinds of operators without a shape in common: another batch, or another model."""
    kinds = [name for name in a.shapes if name in b.shapes and not a.shapes[name] & b.shapes[name]]
    if kinds:
        name = max(kinds, key=lambda kind: (len(max(a.shapes[kind], key=len)), kind))
        examples = [_shorten(f"{name} {max(side.shapes[name], key=len)}") for side in (a, b)]
        also = f" ({len(kinds)} kinds of operators)" if len(kinds) > 1 else ""
        yield Difference(_SHAPES, examples[0], examples[1] + also)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _within(side: Sequence[Recorded], name: str) -> Iterator[Difference]:
    """Runs of one side that do not belong together."""
    for other in side[1:]:
        found = [*_steps(side[0], other), *_machines(side[0], other), *_flags(side[0].run, other.run)]
        if found:
            what = f"{found[0].what}, among the runs {name}"
            yield Difference(what, found[0].before, f"{found[0].after} in {other.path.name}", found[0].blocks)
            return
