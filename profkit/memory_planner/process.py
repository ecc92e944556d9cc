"""``python -m profkit.memory_planner.process`` plans a training step: a request on stdin, the answer on stdout."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from profkit.core.telling import Teller
from profkit.memory_planner.changes import change_of, computed_changes, planned_changes
from profkit.memory_planner.factory import Refused, find_factory
from profkit.memory_planner.failures import describe_missing_data, first_line, traceback_of
from profkit.memory_planner.like_cuda import choose_kernels_as_on_cuda
from profkit.memory_planner.plan import Change, MemoryPlan, PlanAnswer, PlanRequest, Usage
from profkit.memory_planner.search import find_largest
from profkit.memory_planner.training import Trained, Variant, train


def plan(request: PlanRequest, teller: Teller) -> MemoryPlan:
    """Raises `Refused`, and whatever the user's code raises."""
    factory = find_factory(request.target)
    began = time.perf_counter()
    run = partial(train, factory, request)
    teller.at("planning the step")
    trained = run(Variant(request.batch, request.precision, request.optimizer))
    usage = trained.timeline.usage()
    fits = not request.fits_bytes or usage.needed_bytes() <= request.fits_bytes
    notes = list(trained.notes)
    try:
        largest_batch, largest = _largest(request, run, usage, teller)
    except Exception as error:  # a model may only work with one batch size
        largest_batch, largest = None, None
        notes.append(f"the model fails at another batch size, so the largest was not found: {first_line(error)}")
    changes = tuple(_changes(request, run, trained, fits, teller)) if request.changes and not request.inference else ()
    return MemoryPlan(
        target=request.target,
        model=trained.model,
        parameters=trained.parameters,
        request=request,
        usage=usage,
        largest_batch=largest_batch,
        largest=largest,
        changes=changes,
        notes=tuple(notes),
        seconds=time.perf_counter() - began,
    )


def _largest(
    request: PlanRequest, run: Callable[[Variant], Trained], usage: Usage, teller: Teller
) -> tuple[int | None, Usage | None]:
    if not request.fits_bytes:
        return None, None

    def plan_batch(samples: int) -> Usage:
        teller.at(f"looking for the largest batch, now {samples:,}")
        return run(Variant(samples, request.precision, request.optimizer)).timeline.usage()

    return find_largest(plan_batch, request.batch, usage, request.fits_bytes)


def _changes(
    request: PlanRequest, run: Callable[[Variant], Trained], trained: Trained, fits: bool, teller: Teller
) -> Iterator[Change]:
    wanted = tuple(planned_changes(request, fits))
    for number, planned in enumerate(wanted, 1):
        teller.at(f"planning change {number} of {len(wanted)}, {planned.name}")
        yield change_of(planned, run)
    yield from computed_changes(trained)


def answer(request: PlanRequest) -> PlanAnswer:
    """The plan, or why there is none."""
    try:
        with Teller("memory-plan") as teller:
            return PlanAnswer(plan(request, teller))
    except Refused as reason:
        return PlanAnswer(refused=str(reason))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the factory may also call sys.exit
        missing = describe_missing_data(error)
        return PlanAnswer(refused=missing) if missing else PlanAnswer(traceback=traceback_of(error))


def main() -> None:
    """Answer the request on stdin. What the user's code prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=PlanRequest)
    kernels: Any = choose_kernels_as_on_cuda() if request.device != "cpu" else None
    answers.write(msgspec.json.encode(answer(request)))
    answers.flush()
    del kernels


if __name__ == "__main__":
    main()
