"""Work is done in 64-bit floats that nobody asked for.

What it detects
Operators (matrix products and convolutions of any size, others from 4,096 elements on) with an input tensor of type
`double`, if float32 would shorten the step by at least 1 %. Zero-dimensional doubles, as optimizers keep them, and the
conversion of data that arrives as float64 do not count. Neither do doubles that the program asks for by name, or that
the step itself casts to, in order to solve or decompose a matrix, nor any if solving and decomposing take most of their
time: then the step is a solver's, and needs the digits. Where the program makes float64 the type of all new tensors it
may have a reason that no recording shows, so this is an opportunity, of medium severity at most.

Why is this bad?
NumPy's default is float64, PyTorch's is float32. A tensor made from an array keeps the array's type, and from then on
every operator that it meets computes in it: twice the bytes to move, half as many elements in each vector register,
and on most GPUs a small fraction of the arithmetic rate. Training does not profit from the digits.

Example
    x = torch.from_numpy(array)          # float64, as NumPy made it
    y = model.double()(x)

Use instead
    x = torch.from_numpy(array).float()  # once, where the data enters
    y = model(x)

How the saving is estimated
Each operator on doubles and its backward nodes keep the share given by the roofline model: the longer of its arithmetic
and its data transfer, in float32 over that in float64 (Williams, Waterman and Patterson, CACM 52(4), 2009). The rates
are those of the GPU's data sheet, or of the CPU if profkit has measured it (`profkit doctor`). Without rates, half: a
float32 has half the bytes of a float64 and a vector register holds twice as many of them (Intel 64 and IA-32
Architectures Software Developer's Manual, volume 1, chapter 14: eight floats or four doubles in 256 bits). On a GPU a
product keeps at least what floats take at three quarters of their rate, which is what large ones reach. With
`--measure` the operators run in both types instead.
"""

from __future__ import annotations

import ast

import numpy as np

from profkit.derive.families import DECOMPOSITION, MATRIX, VIEW, base_name, operators_of
from profkit.derive.operators.operators import has_type
from profkit.patterns import (
    Call,
    Places,
    by_call,
    call_site,
    distinct_calls,
    each_step,
    in_most_steps,
    locations_of,
    named_operators,
    program_operators,
    remarked,
    times_per_step,
)
from profkit.patterns.loops.located import in_located_step, marks_before
from profkit.patterns.places.callers import model_call_sites
from profkit.patterns.program import launching
from profkit.rules.base import (
    HIGH_FROM,
    CallSite,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    derived_once,
    rule,
)
from profkit.run.directory import Rates
from profkit.savings import computing_ns, run_in_both, scale_with_backward
from profkit.savings.cost_models.devices import ALLOWING_TF32, OLD_DOUBLES, double_rates, has_tf32, rates_of
from profkit.savings.cost_models.roofline import is_convolution, work_of
from profkit.savings.replay import replay
from profkit.source.doubles import double_makers
from profkit.source.remark_kinds import DOUBLES_ASKED_FOR, DOUBLES_BY_DEFAULT, DOUBLES_MADE
from profkit.source.statements import assigned_names, names_in
from profkit.source.syntax import parse_line
from profkit.trace import NONE, Bools, Category, Float64s, Rows, median

_MIN_ELEMENTS = 4096
"""32 KiB of doubles fill a first-level cache. On fewer, an operator's time is that of its dispatch, not of its data."""
_ALSO = 3
_DEFAULT = "float64"
_CASTS = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::type_as")
_DOUBLE = "7"
"""``torch.float64`` as the profiler writes it: its number in ``c10/core/ScalarType.h``. In a cast it is the second
argument."""
_DATA_FIX = (
    "Convert to float32 once, where the data enters: `torch.from_numpy(array).float()`, `np.asarray(data, "
    "dtype=np.float32)` or `torch.tensor(data, dtype=torch.float32)`. Leave out `.double()`."
)
_DEFAULT_FIX = (
    "The program makes float64 the type of all new tensors. If nothing needs the digits, leave out "
    "`torch.set_default_dtype(torch.float64)`. An optimizer with a line search, a constraint to 1e-8 or a matrix "
    "function may need them: then convert only that with `.double()`."
)
_SURE, _ASKED_FOR = 0.85, 0.6
"""Confidence in doubles that came with the data, and in those that the program asks for."""
_MIN_FRACTION = 0.01
"""Less than one per cent of the step is a detail (an index, a mask, a metric), not a type that runs through it."""
_KEPT = 0.5
"""Without rates: both the bytes and, with vector units, the arithmetic halve."""
_UNCERTAINTY = 0.3
"""Dispatch does not halve, and arithmetic without vector units gains less; caches can add to the gain."""
_REACHED = 0.75
"""The share of the data sheet's rate that large products of floats reach on a GPU without tensor cores: 0.77 on an H100
in a network of linear layers; 0.80 on a V100 and 0.94 on an A100, the medians of 20 and 288 products in public traces
of a recommender and of Segment Anything. A higher share would promise more."""
_EFFICIENCY = 0.4
"""Of the time that is kept: products come nearer to their peak in one type than in the other, by a third on an H100,
whose data sheet gives both the same rate."""


@rule(Kind.FAULT, Need.COMPUTE, Need.OPERATORS, Need.SHAPES)
def float64_compute(facts: Facts) -> Suspicions:
    """Find the operators on doubles, and where in the step the type comes from."""
    called = program_operators(facts)
    casts = named_operators(facts, *_CASTS)[called]
    doubles = _holds_doubles(facts)[called]
    cast = called[casts & ~doubles]  # `numpy` casts doubles to doubles
    rows = called[_matters(facts, called) & doubles & ~casts]
    made = cast[by_call(facts, cast, lambda call: call.argument(1) == _DOUBLE)]
    if not in_most_steps(facts, rows) or _are_needed(facts, called, rows, made):
        return
    count, kept = times_per_step(facts, rows), _kept_shares(facts, rows)
    saved = max(1 - float(np.average(kept, weights=np.maximum(computing_ns(facts, rows), 1))), 1e-3)
    edit = scale_with_backward(facts, rows, kept, max(_UNCERTAINTY, _EFFICIENCY * (1 - saved) / saved))
    is_default = facts.run.flags.get("default_dtype") == _DEFAULT
    yield Suspicion(
        message=f"{each_step(count, 'operator', 'works', 'work')} on float64 (double) tensors.",
        fix=_DEFAULT_FIX if is_default else _DATA_FIX,
        rows=rows,
        edit=edit,
        worth=_MIN_FRACTION,
        kind=Kind.OPPORTUNITY if is_default else None,
        severity=Severity.MEDIUM if is_default and replay(facts, edit).fraction >= HIGH_FROM else None,
        confidence=_ASKED_FOR if is_default else _SURE,
        places=Places.of(_where_doubles_enter(facts, made, np.concatenate([made, rows]))),
        evidence={"operators_per_step": count},
        trial=run_in_both(facts, rows, "narrower-type", _UNCERTAINTY, "float64", "float32"),
    )


def _are_needed(facts: Facts, called: Rows, rows: Rows, made: Rows) -> bool:
    """Whether the step solves or decomposes a matrix, which loses half the digits of an ill-conditioned one, and the
    doubles are meant: that takes most of the time on doubles, the step casts to them before any operator works on them,
    the program makes them the type of all new tensors, or it asks for them by name."""
    doubles = called[_holds_doubles(facts)[called]]
    solves = operators_of(facts.trace, DECOMPOSITION)[doubles]
    if not solves.any():
        return False
    spent_ns = computing_ns(facts, doubles)
    if spent_ns[solves].sum() > spent_ns.sum() / 2:
        return True
    is_default = facts.run.flags.get("default_dtype") == _DEFAULT
    if is_default or remarked(facts, DOUBLES_ASKED_FOR) or remarked(facts, DOUBLES_BY_DEFAULT):
        return True
    start_ns = facts.trace.events.start_ns
    first_made = np.full(len(facts.steps), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first_made, facts.steps.index_of(start_ns[made]), start_ns[made])
    return bool((start_ns[rows] > first_made[facts.steps.index_of(start_ns[rows])]).all())


def _kept_shares(facts: Facts, rows: Rows) -> Float64s:
    """For each operator its roofline in float32 over that in float64; `_KEPT` if its work or the rates are unknown.

    The device's rate for float32 depends on whether the program lets products, or convolutions, use TF32. A product on
    a GPU keeps at least what float32 takes at the rate that it really reaches.
    """
    rates = rates_of(facts)
    shares = np.full(len(rows), _KEPT)
    if rates is None:
        return shares
    slowly = launching(facts, rows, facts.trace.where_name(lambda name: OLD_DOUBLES in name))
    taken_ns = computing_ns(facts, rows)
    calls, which = distinct_calls(facts, rows, slowly.astype(np.int32))
    for number, call in enumerate(calls):
        mine, work = which == number, work_of(call.name, call.dims, call.values)
        before = work.least_ns(double_rates(rates, bool(slowly[mine][0])), "float64") if work else None
        after = work.least_ns(rates, "float32", _single_rate(facts, rates, call.name)) if work else None
        if work and before and after:
            least = after / _REACHED / max(median(taken_ns[mine]), 1) if facts.device.present else 0.0
            shares[mine] = min(1.0, max(after / before, least if work.is_product else 0.0))
    return shares


def _single_rate(facts: Facts, rates: Rates, name: str) -> str:
    """By PyTorch's defaults, convolutions of cuDNN may use TF32 and products may not."""
    flags = facts.run.flags
    allowed = flags.get("cudnn_tf32", True) if is_convolution(name) else flags.get("matmul_precision") in ALLOWING_TF32
    return "tf32" if has_tf32(rates) and allowed else "float32"


def _matters(facts: Facts, rows: Rows) -> Bools:
    """Products and convolutions, and PyTorch's other operators on enough elements; views move nothing.

    An operator that is not PyTorch's own, such as a compiled region, takes many tensors. One of them says nothing about
    the others.
    """
    products, views = operators_of(facts.trace, MATRIX)[rows], operators_of(facts.trace, VIEW)[rows]
    own = facts.trace.where_name(lambda name: base_name(name) != "")[rows]
    return products | ((facts.operators.elements[rows] >= _MIN_ELEMENTS) & ~views & own)


@derived_once
def _holds_doubles(facts: Facts) -> Bools:
    """Operators with a `double` input of at least one dimension."""
    rows = np.flatnonzero(has_type(facts.trace, "double") & (facts.trace.events.category == Category.OPERATOR))
    return facts.trace.mask_of(rows[by_call(facts, rows, _has_double_tensor)])


def _has_double_tensor(call: Call) -> bool:
    pairs = zip(call.types, call.shapes, strict=True) if len(call.types) == len(call.shapes) else ()
    return any(name == "double" and shape for name, shape in pairs)


def _where_doubles_enter(facts: Facts, made: Rows, rows: Rows) -> tuple[Location, ...]:
    """The line shortly before the first operator on doubles that makes tensors of data. If the step makes none: a line
    before the loop that the source shows, then the line that calls the model in which that operator runs, then the
    operators' own lines."""
    operators = np.flatnonzero(_holds_doubles(facts) & ~facts.lines.backward)
    located = in_located_step(facts, operators[np.isin(facts.lines.site[operators], facts.lines.site[rows])])
    making, calling, first = NONE, NONE, NONE
    if located.size:
        first = int(located[np.argmin(facts.trace.events.start_ns[located])])
        sites = (int(facts.trace.events.site[mark]) for mark in marks_before(facts, first))
        makers = (site for site in sites if (place := call_site(facts, site)) and _may_make_doubles(place.source))
        making, calling = next(makers, NONE), int(model_call_sites(facts, np.array([first]))[0])
    within = locations_of(facts, [making, calling, *facts.lines.site[np.sort(rows)].tolist()])
    if making != NONE or made.size:
        return within
    known, others = _made_before_the_loop(facts, call_site(facts, facts.lines.site[first]) if located.size else None)
    return (*known, *within, *others[:_ALSO])


def _made_before_the_loop(facts: Facts, first: CallSite | None) -> tuple[tuple[Location, ...], tuple[Location, ...]]:
    """The lines before the loop that make what the step's first operator on doubles takes, and other lines that may.

    Such a line assigns a name that the operator's line ``first`` reads. Otherwise it is the only line that keeps the
    type of its data (`model.double()` then only follows from that) or, without any, the only one that asks for doubles;
    or the only one that another function of that line's file may return.
    """
    by_default = remarked(facts, DOUBLES_BY_DEFAULT) if facts.run.flags.get("default_dtype") == _DEFAULT else ()
    taken, asked_for = remarked(facts, DOUBLES_MADE), remarked(facts, DOUBLES_ASKED_FOR)
    known = by_default or tuple(place for place in (*taken, *asked_for) if first is not None and _gives(place, first))
    if not known:
        made = taken or asked_for
        returned = tuple(place for place in made if first is not None and _may_return(place, first))
        if any(_gives(giver, taker) for taker in returned for giver in made if giver != taker):
            returned = ()  # it returns the doubles of another line too: which of them the step takes is unknown
        known = next((places for places in (made, returned) if len(places) == 1), ())
    return known, tuple(place for place in by_default or (*taken, *asked_for) if place not in known)


def _gives(place: Location, reader: CallSite | Location) -> bool:
    """Whether a line assigns a name, of the reader's function or the whole file, that the reader's line uses."""
    return place.function in (reader.function, "<module>") and _names_it(place, reader)


def _may_return(place: Location, reader: CallSite) -> bool:
    """Whether another function of the reader's file returns what the line makes, or has the reader's name for it."""
    is_returned = isinstance(parse_line(place.source), ast.Return) and place.file == reader.file
    return place.function not in (reader.function, "<module>") and (is_returned or _names_it(place, reader))


def _names_it(place: Location, reader: CallSite | Location) -> bool:
    assigning, reading = parse_line(place.source), parse_line(reader.source)
    if not isinstance(assigning, ast.Assign) or reading is None or place.file != reader.file:
        return False
    return bool(assigned_names(*assigning.targets) & names_in(reading))


def _may_make_doubles(source: str) -> bool:
    line = parse_line(source)
    return line is not None and double_makers(line).any
