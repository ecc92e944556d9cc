"""The optimizer updates one parameter after another, with several small operators for each.

What it detects
Inside `Optimizer.step` of an optimizer of `torch.optim` that could do otherwise, or of the program's own: several
elementwise operators for each parameter, and none of those that take all parameters at once (`_foreach_…`, `_fused_…`).
On a GPU, or where the program asked for it with `foreach=False` or wrote the loop itself, it is a fault. On a CPU the
loop is what PyTorch chooses by itself, so there it is an opportunity; and so is a loop of the program's own that makes
the updates of Adam and spends its time on their data, which only a fused update would save. Sparse gradients
(`nn.Embedding(…, sparse=True)`) are taken by the loop alone: an optimizer that has one is not reported.

Why is this bad?
Each operator is a call of Python and the dispatcher, on a GPU also a launch, for a few kilobytes of data; and each
reads and writes the parameter or its state once more. A network of a hundred tensors makes a thousand calls a step.

Example
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)

Use instead
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

How the saving is estimated
The operators are counted by name, which gives the number k of operators per parameter. What the cheapest operator
takes is the cost of any call; that, and Python's time between the operators, is paid once instead of k times. On a GPU
an optimizer of `torch.optim` then launches as much for all parameters as it did for one; the time before its first
operator, in which it gathers them, counts twice, as the lists are gone through once more. The rest is the moving of
data: a fused update reads parameter, gradient and state once and writes parameter and state once (for
s tensors of state 2s + 3 passes; Adam has two, SGD with momentum one), where the operators make as many passes as their
inputs and outputs. Where threads would meet more often than in the loop, at each small parameter, the range is twice as
wide. Optimizers that know only `foreach` keep that rest. With `--measure` both forms of the optimizer are
run on the recorded shapes instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts
from profkit.derive.families import ELEMENTWISE, MATRIX, operators_of
from profkit.derive.operators.operators import parse_dims
from profkit.evidence.attribution import busiest_site, by_line
from profkit.evidence.frequency import in_most_steps
from profkit.evidence.loops.own_optimizers import in_own_loop, loop_head, resembles_adam, rounds_of_lines
from profkit.evidence.loops.traffic import measure_traffic
from profkit.evidence.program import length_ns, spent_ns, works_under
from profkit.evidence.releases import FOREACH, Release, has_release, note_since
from profkit.experiment import Case, Experiment
from profkit.findings import Kind, Location
from profkit.rules.base import Need, Suspicion, rule
from profkit.ruling.places import Places, locations_of
from profkit.ruling.pricing import call_ns
from profkit.run import CallSite
from profkit.savings.cases import dtype_of
from profkit.savings.edits import Edit, combine, shrink, shrink_work
from profkit.savings.trial import Trial
from profkit.trace.events import Category, Float64s, Rows
from profkit.trace.values import among, distinct, quantile
from profkit.units import format_count, format_time

_FUSED = {"Adam": 2, "AdamW": 2, "SGD": 1, "Adagrad": 1}
"""Optimizers that take ``fused=True`` (torch.optim's documentation), and how many tensors of state each keeps."""
_FUSED_SINCE: dict[str, Release] = {"Adam": (1, 13), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 13)}
"""On GPUs (release notes; Adagrad's came with pytorch/pytorch#177672)."""
_FUSED_ON_CPU_SINCE: Release = (2, 4)
"""All four (release notes)."""
_FOREACH = frozenset((*_FUSED, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"))
"""Those that take ``foreach=True``; the others of torch.optim have the loop alone."""
_TOGETHER = ("aten::_foreach_", "aten::_fused_")
_OF_SPARSE = "aten::_nnz"
"""Asked of sparse tensors alone, by every operator that works on one."""
_SEVERAL = 1.5
"""Updates in a step: a window that cuts one off, or holds one more, is no second one."""
_MIN_OPERATORS = 16
"""Fewer calls take less time than the rest of `Optimizer.step`, whatever they are replaced by."""
_MIN_PER_PARAMETER = 2
"""Plain SGD is one operator per parameter: there is nothing to fuse."""
_PASSES_UNKNOWN = 2.5
"""Where shapes were not recorded: elementwise operators in place read one or two tensors and write one."""
_CALLS_LEFT, _MOVING_GROWS = 0.5, 2.0
"""On a CPU ``foreach`` makes half of the calls, and runs the same operators tensor by tensor, in an order that is worse
for the caches: medians of RMSprop, NAdam and Adadelta on 66 parameters of 8 x 8 to 192 x 192 and 12 of 64 x 64 and
256 x 256, where the calls took 0.3 to 1.2 and moving the data 1 to 4 times as long. PyTorch never chooses it there."""
_GATHERED_TWICE = 2.0
"""With 600 parameters on an H100 the loop's gathering took 1.5 ms and the whole fused step 3.0; with 122, 0.45 and 1.04
(both under the profiler)."""
_UNCERTAINTY = 0.3
"""Fused updates were between a fifth faster and a fifth slower than this for Adam, SGD and Adagrad at three sizes;
`bench_fused_optimizer.py` has more."""

_GRAIN_ELEMENTS = 1 << 15
"""From here on elementwise operators use several threads (``GRAIN_SIZE`` in ATen's ``TensorIterator.h``). A fused
update uses them for every parameter (``parallel_for`` without a grain in ``cpu/FusedAdamKernel.cpp`` and its like)."""
_UNCERTAINTY_OF_REGIONS = 0.6
"""Where threads meet once for each small parameter, which takes microseconds on CPUs of their own. On two CPUs that
other programs used as well (load 8), the update of six parameters took 87 times as long as the loop on one thread."""
_SHARED_CPUS = (
    " All threads then meet at each parameter, so that it is slower than the loop where other programs use the CPUs as "
    "well."
)


class _Updates(Struct, frozen=True):
    """The steps of one optimizer at one line, and the operators inside that work on parameters or their state."""

    name: str
    steps: Rows
    operators: Rows
    per_parameter: float
    is_own: bool = False
    """Whether the loop stands in the program's own optimizer."""
    head: CallSite | None = None
    """Of such a loop the line that goes round, where it is known."""
    may_be_adam: bool = False
    """Whether it makes the updates of Adam, as far as its operators tell."""
    takes_fused: bool = False
    """Whether ``fused=True`` is there in the program's PyTorch, or may be."""
    adds_regions: bool = False
    """Whether a fused update lets several threads meet more often than the loop does."""

    @property
    def parameters(self) -> int:
        return max(1, round(len(self.operators) / self.per_parameter / len(self.steps)))

    def per_step(self, facts: Facts) -> float:
        """How often the optimizer steps in a step of the program."""
        return len(self.steps) / facts.steps.measured_count

    @property
    def fused_states(self) -> int | None:
        """Tensors of state that a fused update would keep; None where there is none that does the same."""
        return _FUSED["Adam"] if self.may_be_adam else _FUSED[self.name] if self.takes_fused else None


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.WHOLE_STEP)
def single_tensor_optimizer(facts: Facts) -> Iterator[Suspicion]:
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
            takes_fused=_may_take_fused(facts, found.name, bool(work.size)),
        )
        updates = structs.replace(updates, adds_regions=not work.size and _adds_regions(facts, updates))
        if not pays_by_itself and updates.fused_states is None:
            continue
        # It may step in one step of several only; what a step of the optimizer takes is what matters then.
        times = max(updates.per_step(facts), 1.0)
        spent = facts.steps.per_step_ns(spent_ns(facts, updates.steps).sum() * times / updates.per_step(facts))
        each = f" in each of its {times:.0f} updates" if times >= _SEVERAL else ""
        yield Suspicion(
            message=f"{updates.name} runs {format_count(round(per_step * times), 'operator')} a step, about "
            f"{updates.per_parameter:.0f} for each of {format_count(updates.parameters, 'parameter')}{each}, and takes "
            f"{format_time(spent)}.",
            spent_ns=spent,
            fix=_advise(facts, updates, bool(work.size)),
            rows=updates.operators if updates.is_own else updates.steps,
            edit=_update_together(facts, updates, work),
            confidence=0.9,
            places=Places(
                Location.of(updates.head), locations_of(facts, [busiest_site(facts, updates.operators)])
            ) if updates.head else Places(),
            count=round(per_step * times),
            kind=Kind.FAULT if (asked or work.size) and not updates.may_be_adam else Kind.OPPORTUNITY,
            evidence={"operators_per_parameter": round(updates.per_parameter, 1), "parameters": updates.parameters},
            trial=None if updates.is_own else _run_together(facts, updates, work),
        )


def _has_sparse(facts: Facts, updates: _Updates) -> bool:
    """Whether one of the gradients is sparse: `fused` raises, and `foreach` takes the loop."""
    asked = facts.trace.named(_OF_SPARSE) & facts.tree.under(facts.trace.mask_of(updates.steps))
    return bool(asked.any())


def _fused_since(name: str, on_device: bool) -> Release:
    return _FUSED_SINCE[name] if on_device else _FUSED_ON_CPU_SINCE


def _may_take_fused(facts: Facts, name: str, on_device: bool) -> bool:
    return name in _FUSED and has_release(facts, _fused_since(name, on_device)) is not False


def _adds_regions(facts: Facts, updates: _Updates) -> bool:
    """Whether more parameters would be shared out among threads than operators are now."""
    host = facts.run.host
    if updates.fused_states is None or host is None or host.torch_threads < 2 or not facts.operators.has_shapes:
        return False
    shared_out = (facts.operators.elements[updates.operators] >= _GRAIN_ELEMENTS).sum() / len(updates.steps)
    return bool(shared_out < updates.parameters)


def _advise(facts: Facts, updates: _Updates, on_device: bool) -> str:
    if updates.may_be_adam:
        since = note_since(facts, _fused_since("AdamW", on_device))
        return (
            "Most of that time goes into data, over which each operator passes once more. If the updates are Adam's, "
            f"`torch.optim.AdamW(…, fused=True)`{since} makes them in one pass."
        )
    if updates.is_own:
        return (
            "Update all parameters at once, as the optimizers of torch.optim do: `torch._foreach_mul_(parameters, x)`, "
            "`torch._foreach_add_(parameters, updates)` and so on take lists of tensors, one call for each operator."
        )
    if updates.takes_fused:
        since = note_since(facts, _fused_since(updates.name, on_device), "`foreach=True`")
        fix = f"Pass `fused=True`{since} to `torch.optim.{updates.name}`: it updates all parameters in one call."
        return f"{fix}{_SHARED_CPUS}" if updates.adds_regions else fix
    since = note_since(facts, FOREACH)
    return f"Pass `foreach=True`{since} to `torch.optim.{updates.name}`: it updates all parameters in a few calls."


def _find_updates(facts: Facts) -> Iterator[_Updates]:
    """The optimizers that loop over their parameters in most steps."""
    rows = facts.measured_rows(facts.optimizing & (facts.trace.events.lane == facts.steps.main_lane))
    for site in (int(facts.lines.site[of_line[0]]) for of_line in by_line(facts, rows)):
        for code in distinct(facts.trace.events.name_code[rows]):
            steps = rows[(facts.lines.site[rows] == site) & (facts.trace.events.name_code[rows] == code)]
            name = _class_of(facts.trace.names[code])
            if not in_most_steps(facts, steps):
                continue
            operators = _loop_operators(facts, steps)
            if not operators.size:
                continue
            found = _Updates(name, steps, operators, _operators_per_parameter(facts, operators))
            if name in _FOREACH:
                yield found
            else:
                yield from _own_updates(facts, found, site)


def _own_updates(facts: Facts, found: _Updates, site: int) -> Iterator[_Updates]:
    """What of the steps of the program's own optimizer, called at the line ``site``, goes round with the parameters."""
    rounds = rounds_of_lines(facts, found.steps)
    parameters = len(found.operators) / found.per_parameter / len(found.steps)
    operators = found.operators[in_own_loop(facts, found.operators, site, rounds, parameters)]
    if operators.size:
        per_parameter = _operators_per_parameter(facts, operators)
        updates = len(operators) / per_parameter
        yield structs.replace(
            found,
            is_own=True,
            operators=operators,
            per_parameter=per_parameter,
            head=loop_head(facts, rounds, updates / len(found.steps)),
            may_be_adam=resembles_adam(facts, operators, updates),
        )


def _class_of(annotation: str) -> str:
    """``'Optimizer.step#Adam.step'`` → ``'Adam'``."""
    return annotation.partition("#")[2].partition(".")[0]


def _loop_operators(facts: Facts, steps: Rows) -> Rows:
    """The elementwise operators that the steps call; none where they call operators on all parameters at once.

    The counters of steps are 0-dimensional and do not count. A product of matrices means that a closure runs the
    model inside the step, which cannot be told from the update.
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
    """Whether ``foreach`` saves more in Python and calls of operators than it loses in moving data, where nothing is
    fused; what an operator takes beyond a call goes into data."""
    moving = float((spent_ns(facts, updates.operators) - call_ns(facts)).clip(min=0).sum())
    calling = float(spent_ns(facts, updates.steps).sum()) - moving
    return _CALLS_LEFT * calling + _MOVING_GROWS * moving <= calling + moving


def _operators_per_parameter(facts: Facts, operators: Rows) -> float:
    """All operators over those of the rarest name that still runs for each parameter.

    SGD adds twice and scales once for each, Adam runs seven operators once. What runs for every fourth at most, such as
    weight decay on one group, does not tell how many there are.
    """
    counts = np.unique(facts.trace.events.name_code[operators], return_counts=True)[1]
    return float(len(operators) / counts[counts * 4 > counts.max()].min())


def _update_together(facts: Facts, updates: _Updates, work: Rows) -> Edit:
    """One call instead of k per parameter, and on the data the passes of a fused update."""
    spent = spent_ns(facts, updates.operators)
    kept_passes = _kept_passes(facts, updates)
    # What remains of an operator besides its call: the moving of data where it can be fused, else all of it on a CPU,
    # where `foreach` runs the same operators in a loop of C++.
    remains = spent if kept_passes == 1.0 and not work.size else (spent - quantile(spent, 0.05)).clip(min=0)
    owner = facts.tree.nearest_ancestor(facts.trace.mask_of(updates.steps), of=updates.operators)
    moving = np.bincount(owner, weights=remains, minlength=len(facts.trace.events))[updates.steps]
    calling = spent_ns(facts, updates.steps) - moving
    if work.size and not updates.is_own:
        kept = _gathering_ns(facts, updates)
    else:
        kept = calling / updates.per_parameter + (0 if work.size else kept_passes * moving)
    uncertainty = _UNCERTAINTY_OF_REGIONS if updates.adds_regions else _UNCERTAINTY
    host = shrink(updates.steps, kept.astype(np.int64), uncertainty)
    return combine([host, _moved_at_once(facts, updates, work, kept_passes)])


def _moved_at_once(facts: Facts, updates: _Updates, work: Rows, kept_passes: float) -> Edit:
    """The device moves what is left of the data of each update in its last piece of work, and the others vanish."""
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
    """What each step keeps where the device updates all parameters in as many launches as one takes."""
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


def _run_together(facts: Facts, updates: _Updates, work: Rows) -> Trial | None:
    """Run the optimizer in both forms on parameters of the recorded shapes: what the rarest operator of its first
    step updates, as `_operators_per_parameter` counts."""
    operators, events = updates.operators, facts.trace.events
    mine = operators[(operators > updates.steps[0]) & (operators < facts.tree.stop[updates.steps[0]])]
    if not facts.operators.has_shapes or not mine.size:
        return None
    codes, counts = np.unique(events.name_code[mine], return_counts=True)
    rarest = codes[np.where(counts * 4 > counts.max(), counts, len(mine) + 1).argmin()]
    chosen = mine[events.name_code[mine] == rarest]
    shapes = tuple(tuple(parse_dims(facts.trace.text_of(code))[0]) for code in events.dims_code[chosen])
    calls = updates.per_step(facts)
    case = Case(updates.name, shapes, dtype_of(facts, int(chosen[0])), calls)
    experiment = Experiment("fused-optimizer", (case,), to="fused" if updates.takes_fused else "foreach")

    def edit_of(factor: float) -> Edit:
        host = shrink(updates.steps, (factor * spent_ns(facts, updates.steps)).astype(np.int64), _UNCERTAINTY)
        kept = (factor * events.duration_ns[work]).astype(np.int64)
        return combine([host, shrink_work(work, kept, _UNCERTAINTY)])

    return Trial(experiment, edit_of)


def _kept_passes(facts: Facts, updates: _Updates) -> float:
    """The share of the passes over the data that is left; all where the optimizer cannot be fused."""
    states = updates.fused_states
    if states is None:
        return 1.0
    traffic = measure_traffic(facts.trace, updates.operators)
    written = float(traffic.written_bytes.sum())
    passes = float(traffic.read_bytes.sum()) / written + 1 if written else _PASSES_UNKNOWN
    return min(1.0, (2 * states + 3) / (passes * updates.per_parameter))
