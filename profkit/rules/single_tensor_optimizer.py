"""The optimizer updates one parameter after another, with several small operators for each.

What it detects
Inside `Optimizer.step` of an optimizer of `torch.optim`, or of the program's own: several elementwise operators for
each parameter, and none of those that take all parameters at once (`_foreach_…`, `_fused_…`). It is a fault on a GPU,
and wherever the program asks for the loop (`foreach=False`) or writes it itself. It is an opportunity on a CPU, where
PyTorch chooses the loop by default, and for the program's own Adam-like loop if its time goes into data, because then
only a fused update saves anything. Only the loop accepts sparse gradients (`nn.Embedding(…, sparse=True)`), so an
optimizer that gets one is not reported.

Why is this bad?
Each operator costs a call through Python and the dispatcher, on a GPU also a launch, for a few kilobytes of data; and
each reads and writes the parameter or its state once more. A network with a hundred tensors makes a thousand calls a
step.

Example
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)

Use instead
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

How the saving is estimated
Counting the operators by name gives k, the operators per parameter. The cheapest operator shows what any call costs;
that, and Python's time between the operators, is paid once instead of k times. On a GPU an optimizer of `torch.optim`
then launches as much for all parameters as it did for one; the time before its first operator, in which it gathers
them, counts twice, because it goes through the lists once more. The rest is moving data: a fused update reads
parameter, gradient and state once and writes parameter and state once (2s + 3 passes for s tensors of state; Adam has
two, SGD with momentum one), where the operators make as many passes as they have inputs and outputs. Optimizers that
only know `foreach` keep all of that. Where a fused update synchronises its threads more often than the loop, at each
small parameter, the range is twice as wide. `--measure` runs both forms of the optimizer on the recorded shapes
instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, structs

from profkit.derive.families import ELEMENTWISE, MATRIX, operators_of
from profkit.patterns import (
    Places,
    busiest_site,
    by_line,
    first_shape,
    in_most_steps,
    length_ns,
    locations_of,
    shapes_of,
    spent_ns,
    works_under,
)
from profkit.patterns.loops.own_optimizers import in_own_loop, loop_head, resembles_adam, rounds_of_lines
from profkit.patterns.loops.traffic import measure_traffic
from profkit.patterns.releases import FOREACH, FUSED_SINCE, FUSED_STATES, Release, has_release, note_since
from profkit.rules.base import (
    CallSite,
    Facts,
    Kind,
    Location,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_time,
    rule,
)
from profkit.run.experiment import Case, Experiment
from profkit.savings import Edit, Trial, call_ns, combine, dtype_of, shrink, shrink_work
from profkit.savings.step_time import as_in_step_ns
from profkit.trace import Category, Float64s, Rows, among, distinct
from profkit.trace.statistics import quantile

_FUSED_ON_CPU_SINCE: Release = (2, 4)
"""All four (release notes)."""
_FOREACH = frozenset((*FUSED_STATES, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"))
"""Those that take ``foreach=True``; the others in torch.optim only have the loop."""
_TOGETHER = ("aten::_foreach_", "aten::_fused_")
_OF_SPARSE = "aten::_nnz"
"""Only operators on sparse tensors call this."""
_SEVERAL = 1.5
"""Above this many updates per step, the program really updates more than once; a window that clips one stays below
it."""
_MIN_OPERATORS = 16
"""Fewer calls take less time than the rest of `Optimizer.step`."""
_MIN_PER_PARAMETER = 2
"""Plain SGD runs one operator per parameter: there is nothing to fuse."""
_PASSES_UNKNOWN = 2.5
"""Without shapes: an in-place elementwise operator reads one or two tensors and writes one."""
_CALLS_LEFT, _MOVING_GROWS = 0.5, 2.0
"""On a CPU ``foreach`` halves the calls, but runs the same operators tensor by tensor, in an order that suits the
caches less: for RMSprop, NAdam and Adadelta on 66 parameters of 8 x 8 to 192 x 192 and on 12 of 64 x 64 and 256 x 256,
the median time of the calls was 0.3 to 1.2 times, and of moving the data 1 to 4 times, that of the loop. PyTorch never
chooses it there."""
_GATHERED_TWICE = 2.0
"""With 600 parameters on an H100 the loop's gathering took 1.5 ms and the whole fused step 3.0; with 122, 0.45 and 1.04
(both under the profiler)."""
_UNCERTAINTY = 0.3
"""Fused updates were between a fifth faster and a fifth slower than this for Adam, SGD and Adagrad at three sizes;
`bench_fused_optimizer.py` has more."""

_GRAIN_ELEMENTS = 1 << 15
"""From here on elementwise operators use several threads (``GRAIN_SIZE`` in ATen's ``TensorIterator.h``). A fused
update uses them for every parameter (``parallel_for`` without a grain in ``cpu/FusedAdamKernel.cpp`` and its
siblings)."""
_UNCERTAINTY_OF_REGIONS = 0.6
"""Synchronising threads at each small parameter takes microseconds on idle CPUs. On two CPUs shared with other programs
(load 8), updating six parameters took 87 times as long as the loop on one thread."""
_SHARED_CPUS = " All threads then meet at each parameter, which is slower than the loop if other programs use the CPUs."


class _Updates(Struct, frozen=True):
    """One optimizer's steps at one line, and the operators in them that work on parameters or their state."""

    name: str
    steps: Rows
    operators: Rows
    per_parameter: float
    is_own: bool = False
    """The loop stands in the program's own optimizer."""
    head: CallSite | None = None
    """The ``for`` line of such a loop, if known."""
    may_be_adam: bool = False
    """The program's own operators look like Adam's, and only fusing them would pay."""
    takes_fused: bool = False
    """The program's PyTorch has ``fused=True`` for it, or may have."""

    @property
    def parameters(self) -> int:
        return max(1, round(len(self.operators) / self.per_parameter / len(self.steps)))

    @property
    def fused_states(self) -> int | None:
        """State tensors that an equivalent fused update keeps; None if there is no such update."""
        return FUSED_STATES["Adam"] if self.may_be_adam else FUSED_STATES[self.name] if self.takes_fused else None


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def single_tensor_optimizer(facts: Facts) -> Suspicions:
    """Look at each optimizer's steps, by class and line."""
    for found in _find_updates(facts):
        per_step = len(found.operators) / len(found.steps)
        if per_step < _MIN_OPERATORS or found.per_parameter < _MIN_PER_PARAMETER or _has_sparse(facts, found):
            continue
        asked = found.is_own or any(
            use.name == found.name and use.foreach is False and not use.fused for use in facts.run.optimizers
        )
        work = works_under(facts, facts.trace.mask_of(found.steps))
        pays_by_itself = bool(work.size) or (asked and _loops_mostly(facts, found))
        updates = structs.replace(
            found,
            may_be_adam=found.may_be_adam and not pays_by_itself,
            takes_fused=found.name in FUSED_STATES
            and has_release(facts, _fused_since(found.name, bool(work.size))) is not False,
        )
        if not pays_by_itself and updates.fused_states is None:
            continue
        # Some optimizers only step in every n-th step of the program: then one of their steps is what counts.
        each_step = len(found.steps) / facts.steps.measured_count
        times = max(each_step, 1.0)
        recorded_ns = facts.steps.per_step_ns(spent_ns(facts, updates.steps).sum() * times / each_step)
        spent = int(as_in_step_ns(facts, recorded_ns))
        each = f" in each of its {times:.0f} updates" if times >= _SEVERAL else ""
        yield Suspicion(
            message=f"{updates.name} takes {format_time(spent)}: it runs "
            f"{format_count(round(per_step * times), 'operator')} a step, about {updates.per_parameter:.0f} for "
            f"each of {format_count(updates.parameters, 'parameter')}{each}.",
            spent_ns=spent,
            fix=_advise(facts, updates, work),
            rows=updates.operators if updates.is_own else updates.steps,
            edit=_update_together(facts, updates, work),
            confidence=0.9,
            places=Places(Location.of(updates.head), locations_of(facts, [busiest_site(facts, updates.operators)]))
            if updates.head
            else Places(),
            count=round(per_step * times),
            kind=Kind.FAULT if (asked or work.size) and not updates.may_be_adam else Kind.OPPORTUNITY,
            evidence={"operators_per_parameter": round(updates.per_parameter, 1), "parameters": updates.parameters},
            trial=None if updates.is_own else _run_together(facts, updates, work, each_step),
        )


def _has_sparse(facts: Facts, updates: _Updates) -> bool:
    """Whether one of the gradients is sparse: `fused` raises for these, and `foreach` falls back to the loop."""
    asked = facts.trace.named(_OF_SPARSE) & facts.tree.under(facts.trace.mask_of(updates.steps))
    return bool(asked.any())


def _fused_since(name: str, on_device: bool) -> Release:
    return FUSED_SINCE[name] if on_device else _FUSED_ON_CPU_SINCE


def _adds_regions(facts: Facts, updates: _Updates, work: Rows) -> bool:
    """Whether a fused update on the CPU splits more parameters among threads than the loop splits operators."""
    host = facts.run.host
    if work.size or updates.fused_states is None or host is None or host.torch_threads < 2:
        return False
    if not facts.operators.has_shapes:
        return False
    shared_out = (facts.operators.elements[updates.operators] >= _GRAIN_ELEMENTS).sum() / len(updates.steps)
    return bool(shared_out < updates.parameters)


def _advise(facts: Facts, updates: _Updates, work: Rows) -> str:
    if updates.may_be_adam:
        since = note_since(facts, _fused_since("AdamW", bool(work.size)))
        return (
            "Most of that time goes into moving data, which each operator reads and writes once more. If the "
            f"updates are Adam's, `torch.optim.AdamW(…, fused=True)`{since} makes them in one pass."
        )
    if updates.is_own:
        return (
            "Update all parameters at once, as the optimizers of torch.optim do. "
            "`torch._foreach_mul_(parameters, x)`, `torch._foreach_add_(parameters, updates)` and so on take "
            "lists of tensors, one call for each operator."
        )
    if updates.takes_fused:
        since = note_since(facts, _fused_since(updates.name, bool(work.size)), "`foreach=True`")
        fix = f"Pass `fused=True`{since} to `torch.optim.{updates.name}`: it updates all parameters in one call."
        return fix + _SHARED_CPUS * _adds_regions(facts, updates, work)
    since = note_since(facts, FOREACH)
    return f"Pass `foreach=True`{since} to `torch.optim.{updates.name}`: it updates all parameters in a few calls."


def _find_updates(facts: Facts) -> Iterator[_Updates]:
    """The optimizers that loop over their parameters, and step in most steps."""
    rows = facts.measured_rows(facts.optimizing & (facts.trace.events.lane == facts.steps.main_lane))
    for site in (int(facts.lines.site[of_line[0]]) for of_line in by_line(facts, rows)):
        for code in distinct(facts.trace.events.name_code[rows]):
            steps = rows[(facts.lines.site[rows] == site) & (facts.trace.events.name_code[rows] == code)]
            name = facts.trace.names[code].partition("#")[2].partition(".")[0]  # 'Optimizer.step#Adam.step'
            if not in_most_steps(facts, steps):
                continue
            operators = _loop_operators(facts, steps)
            if not operators.size:
                continue
            each = len(operators) / len(_once_per_parameter(facts, operators))
            found = _Updates(name, steps, operators, each)
            if name in _FOREACH:
                yield found
            else:
                yield from _own_updates(facts, found, site)


def _own_updates(facts: Facts, found: _Updates, site: int) -> Iterator[_Updates]:
    """The part of the program's own optimizer, called at the line ``site``, that runs once per parameter."""
    rounds = rounds_of_lines(facts, found.steps)
    parameters = len(found.operators) / found.per_parameter / len(found.steps)
    operators = found.operators[in_own_loop(facts, found.operators, site, rounds, parameters)]
    if operators.size:
        updates = len(_once_per_parameter(facts, operators))
        yield structs.replace(
            found,
            is_own=True,
            operators=operators,
            per_parameter=len(operators) / updates,
            head=loop_head(facts, rounds, updates / len(found.steps)),
            may_be_adam=resembles_adam(facts, operators, updates),
        )


def _loop_operators(facts: Facts, steps: Rows) -> Rows:
    """The elementwise operators that the steps call; none if they call operators on all parameters at once.

    The 0-dimensional counters of steps do not count. A product of matrices means that a closure runs the model inside
    the step, and then nothing tells the update apart from the model.
    """
    inside = facts.tree.under(facts.trace.mask_of(steps))
    together = facts.trace.where_name(lambda name: name.startswith(_TOGETHER))
    if (inside & (together | operators_of(facts.trace, MATRIX))).any():
        return steps[:0]
    called = facts.operators.rows
    wanted = inside & operators_of(facts.trace, ELEMENTWISE) & ~facts.lines.backward
    chosen: Rows = called[wanted[called]]
    return chosen[facts.operators.elements[chosen] > 0] if facts.operators.has_shapes else chosen


def _loops_mostly(facts: Facts, updates: _Updates) -> bool:
    """Whether an unfused ``foreach`` saves more in Python and in calls than it loses in moving data. An operator's time
    beyond that of a call goes into data."""
    moving = float((spent_ns(facts, updates.operators) - call_ns(facts)).clip(min=0).sum())
    calling = float(spent_ns(facts, updates.steps).sum()) - moving
    return _CALLS_LEFT * calling + _MOVING_GROWS * moving <= calling + moving


def _once_per_parameter(facts: Facts, operators: Rows) -> Rows:
    """The operators of the rarest name that still runs for each parameter.

    SGD adds twice and scales once for each, Adam runs seven operators once. A name that is less than a quarter as
    frequent as the commonest, such as weight decay on one group, does not tell how many parameters there are.
    """
    names = facts.trace.events.name_code[operators]
    codes, counts = np.unique(names, return_counts=True)
    chosen: Rows = operators[names == codes[np.where(counts * 4 > counts.max(), counts, len(operators) + 1).argmin()]]
    return chosen


def _update_together(facts: Facts, updates: _Updates, work: Rows) -> Edit:
    """One call instead of k per parameter, and the data passes of a fused update."""
    spent = spent_ns(facts, updates.operators)
    kept_passes = _kept_passes(facts, updates)
    # Besides its call an operator moves data, which fusing saves. Unfused on a CPU all of it remains: `foreach` runs
    # the same operators in a C++ loop.
    remains = spent if kept_passes == 1.0 and not work.size else (spent - quantile(spent, 0.05)).clip(min=0)
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(updates.steps), of=updates.operators)
    moving = np.bincount(owner, weights=remains, minlength=len(facts.trace.events))[updates.steps]
    calling = spent_ns(facts, updates.steps) - moving
    if work.size and not updates.is_own:
        kept = _gathering_ns(facts, updates)
    else:
        kept = calling / updates.per_parameter + (0 if work.size else kept_passes * moving)
    uncertainty = _UNCERTAINTY_OF_REGIONS if _adds_regions(facts, updates, work) else _UNCERTAINTY
    host = shrink(updates.steps, kept.astype(np.int64), uncertainty)
    return combine([host, _moved_at_once(facts, updates, work, kept_passes)])


def _moved_at_once(facts: Facts, updates: _Updates, work: Rows, kept_passes: float) -> Edit:
    """On the device, each update's last piece of work moves all the data that is left, and the other pieces vanish."""
    if not work.size:
        return Edit()
    duration, mask = facts.trace.events.duration_ns[work], facts.trace.mask_of(updates.steps)
    owners = facts.launches.owner[among(facts.launches.work, work)]
    step = np.searchsorted(updates.steps, facts.tree.nearest_ancestor(mask, include_self=True, of=owners))
    moving = np.bincount(step, kept_passes * (duration - duration.min()), len(updates.steps))
    order = np.lexsort((facts.trace.events.start_ns[work], step))
    last = order[np.append(np.diff(step[order]) > 0, True)]
    kept = np.zeros(len(work), dtype=np.int64)
    kept[last] = moving[step[last]] + duration.min()
    return shrink_work(work, kept, _UNCERTAINTY)


def _gathering_ns(facts: Facts, updates: _Updates) -> Float64s:
    """What each step keeps on the host if the device updates all parameters with as many launches as it used for
    one."""
    events, tree = facts.trace.events, facts.tree
    inside = tree.under(facts.trace.mask_of(updates.steps)) & (events.category == Category.OPERATOR)
    called = np.flatnonzero(inside)
    owner = np.searchsorted(updates.steps, tree.nearest_ancestor(facts.trace.mask_of(updates.steps), of=called))
    first, last = tree.end_ns[updates.steps].copy(), events.start_ns[updates.steps].copy()
    np.minimum.at(first, owner, events.start_ns[called])
    np.maximum.at(last, owner, tree.end_ns[called])
    before = length_ns(facts, events.start_ns[updates.steps], first)
    behind = length_ns(facts, last, tree.end_ns[updates.steps])
    between = spent_ns(facts, updates.steps) - before - behind
    kept = _GATHERED_TWICE * before + behind + between / updates.parameters
    return np.minimum(kept, spent_ns(facts, updates.steps))


def _run_together(facts: Facts, updates: _Updates, work: Rows, calls: float) -> Trial | None:
    """Run both forms of the optimizer on parameters of the shapes that its first recorded step updates."""
    operators, events = updates.operators, facts.trace.events
    mine = operators[(operators > updates.steps[0]) & (operators < facts.tree.stop[updates.steps[0]])]
    if not facts.operators.has_shapes or not mine.size:
        return None
    chosen = _once_per_parameter(facts, mine)
    shapes = tuple(tuple(first_shape(shapes_of(facts, row))) for row in chosen.tolist())
    case = Case(updates.name, shapes, dtype_of(facts, int(chosen[0])), calls)
    experiment = Experiment("fused-optimizer", (case,), to="fused" if updates.takes_fused else "foreach")

    def edit_of(factor: float) -> Edit:
        host = shrink(updates.steps, (factor * spent_ns(facts, updates.steps)).astype(np.int64), _UNCERTAINTY)
        kept = (factor * events.duration_ns[work]).astype(np.int64)
        return combine([host, shrink_work(work, kept, _UNCERTAINTY)])

    return Trial(experiment, edit_of)


def _kept_passes(facts: Facts, updates: _Updates) -> float:
    """The share of the passes over the data that is left; 1 if the optimizer cannot be fused."""
    states = updates.fused_states
    if states is None:
        return 1.0
    traffic = measure_traffic(facts.trace, updates.operators)
    written = float(traffic.written_bytes.sum())
    passes = float(traffic.read_bytes.sum()) / written + 1 if written else _PASSES_UNKNOWN
    return min(1.0, (2 * states + 3) / (passes * updates.per_parameter))
