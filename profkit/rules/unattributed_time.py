"""Much of the step passes outside everything that PyTorch records: in Python, in other libraries, or waiting.

What it detects
Stretches in which the main thread does nothing that this recording explains. With a GPU these are stretches of a
millisecond or more in which the device idles and the host neither launches work nor waits, nor does anything else that
a rule looks at; it may compute on its own. Without a GPU they are stretches of a fifth of a millisecond or more without
an operator, a request for a batch, an optimizer's step, garbage collection or a wait for another rank. With a GPU they
have to make up a tenth of the steps' time, without one a fifth, and half of that share in most steps. The finding names
the line under which most of this time passes, and what it calls: by samples of the program's stacks in steps that
nothing else watched, or else by the step whose lines profkit marked. If the line's text shows one of a few costly
habits, such as a search in a list or a row of a data frame, it says that, too. For a recording made elsewhere it names
the function or the range in which it passes, if that has Python stacks or ranges of the program's own.

Without a GPU, further lines are findings of their own: those with such a habit that surely take a twentieth of a step,
by samples. Where all such time together makes up less than a fifth, so is a line that surely takes a tenth.

The rule is silent where at most one step was recorded and most of that time is an import, which `slow-start` tells: of
a module, or within a call, as the first optimizer imports the compiler. Without a GPU it is silent where samples show
that plain steps spend less than a fifth of their time there: then the recorded steps were held up by the recording, or
by other programs. With a GPU it is silent, unless samples name a line, where these stretches are half as long again as
the GPU idles in a step that ran without the profiler.

Why is this bad?
It need not be: a simulator, a tokenizer or an evaluation in NumPy may be what the program is for. But PyTorch waits for
it, a GPU idles meanwhile, and no other rule can say anything about that time, so it is easily overlooked.

Example
    for batch in batches:
        targets = [lookup(word) for word in batch.words]  # Python, word by word
        loss = criterion(model(batch.ids), torch.tensor(targets))

Use instead
    targets = [encode(batch) for batch in batches]  # once, before the training
    for batch, target in zip(batches, targets):
        loss = criterion(model(batch.ids), target)

How the saving is estimated
With a GPU the step is replayed without these stretches: this is the gain if that work is done beforehand, by another
process or on the device. Without a GPU it is replayed without the line that the finding names: with its share of plain
steps, by samples of the program's stacks, or else with its part of these stretches in the step whose lines were marked.
Where the lines of its function together take half as much again, they are priced instead, as their work is spread; not
those of the function that trains. Without such a line there is no estimate. Either is the most that can be gained: the
recording does not tell what of that work is necessary. So without a GPU the severity is never high. It is medium if
samples show that what is priced takes a fifth of the step or more outside of PyTorch, and the likely range of the gain
begins at a tenth or above; of a line with a costly habit, half of either. Otherwise it is low: marks on lines make
Python look longer than it is.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from profkit.derive.steps.boundaries import ONE_UPDATE, UNDIVIDED
from profkit.derive.timeline.intervals import Intervals, intersection, union
from profkit.patterns import Places, call_site, length_ns, name_lines, named_operators, program_operators
from profkit.patterns.places.frames import parse_frame
from profkit.patterns.ranks.blocked import blocked_time
from profkit.patterns.repeated_calls import SameAgain, same_again
from profkit.patterns.time.advice import advice_on
from profkit.patterns.time.hottest import Hot, lines_by_time
from profkit.patterns.time.idling import HOST_OPERATORS, Around, idle_parts, place_around
from profkit.patterns.time.line_prices import (
    OutsideLine,
    line_prices,
    lines_outside,
    outside_in_function,
    share_called_by,
)
from profkit.patterns.time.list_lines import lines_reading_lists
from profkit.patterns.time.seldom_needed import lines_seldom_needed, seldom_needed
from profkit.rules.base import (
    HIGH_FROM,
    LOW_FROM,
    CallSite,
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    derived_once,
    format_share,
    format_time,
    rule,
)
from profkit.run.whole_run import StackActivity
from profkit.savings import Edit, shrink_spans, without_share
from profkit.savings.replay import replay
from profkit.savings.simulate import predict_saving
from profkit.savings.step_time import as_in_step_ns, step_time, undisturbed_in_step_ns
from profkit.trace import Bools, Category, Rows, among, distinct

_LEAST_STRETCH_NS = {False: 200_000, True: 1_000_000}
"""Without and with a device. Python takes microseconds from one operator to the next, even for hundreds of lines, which
is what launch-bound and tensor-element-loop are about. A longer stretch is separate work or a wait. A device's idle
millisecond begins when it has caught up with the host, and ends with the latency of a launch."""
_LEAST_ARITHMETIC_NS = 200_000
"""An operator that only makes a view or hands work over takes microseconds itself: a longer one computes on the
host."""
_LEAST_SHARE = {False: 0.2, True: HIGH_FROM}
"""Without and with a device. In a healthy program logging, progress bars and the bookkeeping of a training loop may
take less than this; and while a device idles, recording adds several per cent here and there (Python frames, CUPTI's
buffers)."""
_NOTABLE_SHARE = 0.2
"""Of the located step's time outside PyTorch: a line with less is no place to begin."""
_MOST_LINES, _MOST_LEADS = 3, 8
"""Named, and looked at as the first: a function whose work is spread may have no line among the first three."""
_MOST_OF_PLAIN = 1.5
"""Of the device's idle time in plain steps. CUPTI slows launches, and so a step, by up to 40 % (H100)."""
_UNCERTAINTY = 0.5
"""Part of it may have to stay where it is."""
_SURE_HABIT, _SURE_LINE = 0.05, HIGH_FROM
"""Of a step, what a line takes at least, chance allowed for, to be told beside the one with most of the time, or where
they take little together. What a habit costs is known to be needless in part, so less of it is worth a look."""
_IMPORTS = re.compile(r"\s*(import|from\s+\S+\s+import)\b")
"""A line's text. Imports come once: `slow-start` tells them with their share of the run."""
_NAMELESS = "the recording names nothing that the host does between operators (with_stack=True, or ranges of your own)"


_FIX = (
    "See what happens there. Prepare what is the same in every step once, before the loop, and let NumPy or "
    "PyTorch do what Python does element by element. Move reading and parsing into a DataLoader's workers."
)
_MOSTLY = 0.8
"""Of a line's time: the rest is its calls from elsewhere."""
_MUCH = 0.2
"""Of the step, for medium severity. A line with less may do what the program is for, and a part of it may stay."""
_SPREAD = 1.5
"""Times what its costliest line takes: then the function is priced, as its work is spread over lines of a few calls
each, such as the drawing of a picture."""
_NOTABLY_MORE = 0.05
"""Of the step. So much more than its costliest line a function has to take to be worth a sentence."""


@rule(Kind.OPPORTUNITY, Need.OPERATORS, Need.ROUNDS)
def unattributed_time(facts: Facts) -> Suspicions:
    """One finding for all of that time, at the line or in the function with most of it. Then one for each further line
    that surely takes much."""
    told = list(_most_of_it(facts))
    yield from told
    yield from _further_lines(facts, {(one.file, one.line) for found in told for one in found.places.all()[:1]})


def _further_lines(facts: Facts, named: set[tuple[str, int]]) -> Suspicions:
    """Lines beside the ``named`` one: with a costly habit, or in a step with little else outside of PyTorch. Their
    price is by samples alone, so a step need not be spent there for the most part."""
    if facts.device.present or facts.run.torch is None:
        return
    for line in _lines_to_tell(facts):
        site, callee = line.price.site, line.price.callee
        low, high = (line.outside * end / line.price.share for end in (line.price.low, line.price.high))
        advice = advice_on(facts, site.file, site.line, callee)
        least = _SURE_HABIT if advice is not None else _SURE_LINE if not named else 1.0
        if low < least or (site.file, site.line) in named:
            continue
        edit = without_share(facts, line.outside, low, high)
        yield Suspicion(
            message=_say_of_line(line) + (f" {advice.does}" if advice is not None else "") + _bound(facts, edit),
            fix=advice.fix if advice is not None else _FIX,
            edit=edit,
            confidence=0.7,
            count=1,
            places=Places.of_sites([site]),
            severity=_severity(facts, line.outside, edit, is_habit=advice is not None),
            evidence={
                "line_share": round(line.outside, 4),
                "line_share_low": round(low, 4),
                "line_share_high": round(high, 4),
                "callee": callee,
            },
        )


def _say_of_line(line: OutsideLine) -> str:
    calls = f", in `{line.price.callee}`" if line.price.callee else ""
    where = "" if line.may_compute else ", outside of PyTorch's operators"
    return f"This line takes {format_share(line.outside)} of the host's time{calls}{where}."


def _bound(facts: Facts, edit: Edit | None) -> str:
    if edit is None:
        return ""
    return f" Without it, the step would be at most {format_share(replay(facts, edit).fraction)} shorter."


def _most_of_it(facts: Facts) -> Suspicions:
    """That time as a whole, if it makes up much of the step."""
    steps, has_device = facts.steps, facts.device.present
    spent = _unexplained(facts, steps.measured)
    around = None
    if facts.run.torch is None:
        spent = _of_main_thread(facts, spent)
        around = place_around(facts, spent)
        if around is None and spent.total_ns:
            raise CannotLook(_NAMELESS)
    total_ns = int(length_ns(facts, steps.start_ns[steps.measured], steps.end_ns[steps.measured]).sum())
    total_ns -= int(steps.pause_ns[steps.measured].sum())
    outside_ns = int(length_ns(facts, spent.start_ns, spent.end_ns).sum())
    if total_ns <= 0 or outside_ns < _LEAST_SHARE[has_device] * total_ns or not _is_usual(facts, spent):
        return
    share, per_step_ns = outside_ns / total_ns, steps.per_step_ns(outside_ns)
    if (not has_device and _is_spent_inside(facts)) or _is_repeated_time(facts, share) or _is_an_import(facts, spent):
        return
    if sampled := _sampled_lines(facts, share):
        yield _suspect_sampled(facts, spent, sampled, _share_of_plain(facts, share))
        return
    if has_device and not _fits_plain_steps(facts, steps.per_step_ns(spent.total_ns)):
        return
    lines = () if around else _lines(facts, spent)
    edit = _edit(facts, spent, lines)
    bound = (
        f" Without what this line does there, the step would be about {format_share(replay(facts, edit).fraction)} "
        "shorter."
        if edit is not None and lines and not has_device
        else ""
    )
    places = Places.of([_function(around)]) if around else name_lines(facts, (line.site for line in lines))
    does, fix = _habit(facts, places.location if lines else None)
    unsampled = f" The line is that of the step whose lines were marked: {facts.stacks.reason}." if lines else ""
    how_much = f"{format_share(share)} of the step, {format_time(undisturbed_in_step_ns(facts, outside_ns))},"
    yield Suspicion(
        message=_describe(facts, spent, how_much, around) + does + bound + (unsampled if facts.stacks.reason else ""),
        fix=fix,
        edit=edit,
        confidence=0.6,
        count=max(1, round(len(spent.start_ns) / steps.measured_count)),
        places=places,
        severity=None if has_device else Severity.LOW,
        evidence={"unattributed_ns_per_step": per_step_ns, "unattributed_share": round(share, 4)},
    )


def _is_an_import(facts: Facts, spent: Intervals) -> bool:
    """Whether most of that time passes under a line that imports, in what was recorded before any step or with the
    only one."""
    if not (facts.is_part or facts.steps.source in (*UNDIVIDED, ONE_UPDATE)):
        return False
    located = _lines(facts, spent)[:1]
    sites = [line.price.site for line in lines_outside(facts)[:1]]
    sites += [site for line in located if (site := call_site(facts, line.site)) is not None]
    return any(_IMPORTS.match(site.source) or _mostly_imports(facts, site) for site in sites)


def _mostly_imports(facts: Facts, site: CallSite) -> bool:
    """Whether most looks at a line, over the whole run, met an import: the first optimizer imports the compiler."""
    spent, importing = Counter[bool](), StackActivity.IMPORTING
    known = [(place.site.file, place.site.line) == (site.file, site.line) for place in facts.account.places]
    for stack in facts.account.stacks:
        if any(known[place] for place in stack.places if 0 <= place < len(known)):
            spent[stack.activity == importing] += stack.time_ns
    return spent[True] > spent[False]


def _sampled_lines(facts: Facts, share: float) -> tuple[OutsideLine, ...]:
    """The lines with a notable part of this share of the step, by samples of the program's stacks; if there is none,
    the first of many."""
    lines = _lines_to_tell(facts)
    leads: dict[tuple[str, str], OutsideLine] = {}
    for line in lines[:_MOST_LEADS]:
        leads.setdefault((line.price.site.file, line.price.site.function), line)
    lead = max(leads.values(), key=lambda line: _with_its_function(facts, line), default=None)
    if lead is None:
        return ()
    others = [line for line in lines[:_MOST_LINES] if line is not lead and line.outside >= _NOTABLE_SHARE * share]
    return (lead, *others[: _MOST_LINES - 1])


def _lines_to_tell(facts: Facts) -> list[OutsideLine]:
    """The lines outside of PyTorch, by samples, without updates and what other rules name."""
    updating = {
        (site.file, site.line)
        for code in distinct(facts.lines.site[facts.updates.rows]).tolist()
        if (site := call_site(facts, code)) is not None
    }
    lines = [line for line in lines_outside(facts) if (line.price.site.file, line.price.site.line) not in updating]
    lines = [line for line in lines if not _reads_a_list(facts, line.price.site)]
    return [line for line in lines if not _is_repeated(facts, line.price.site) and not _is_seldom(facts, line)]


def _reads_a_list(facts: Facts, site: CallSite) -> bool:
    """Whether `slow-tensor-construction` tells all that the line takes."""
    told = (line.site for line in lines_reading_lists(facts) if line.sampled is not None)
    return any(one is not None and (one.file, one.line) == (site.file, site.line) for one in told)


def _with_its_function(facts: Facts, line: OutsideLine) -> float:
    """What the line takes, or its function if its work is spread over several lines."""
    function = outside_in_function(facts, line.price.site).share
    is_spread = not facts.device.present and function >= _SPREAD * line.price.share
    return max(line.outside, function) if is_spread else line.outside


def _share_of_plain(facts: Facts, share: float) -> float:
    """The share of a plain step that passes outside of PyTorch, if lines were marked in all recorded ones: marks make
    Python look longer than it is, PyTorch's own as well. Samples tell then."""
    return min(share, sum(line.outside for line in lines_outside(facts))) if facts.steps.located.all() else share


def _is_repeated(facts: Facts, site: CallSite) -> bool:
    """Whether `repeated-call` names the line, or the function that it belongs to."""
    return any(
        site in found.sites or (site.file, site.function) == (found.defined.file, found.defined.function)
        for found in _repeated(facts)
    )


def _is_seldom(facts: Facts, line: OutsideLine) -> bool:
    """Whether most of the line's time belongs to what `logged-every-step` or `rarely-read-result` names."""
    return share_called_by(facts, line.price.site, lines_seldom_needed(facts)) >= _MOSTLY


def _is_repeated_time(facts: Facts, share: float) -> bool:
    """Whether little of this share of the step is left besides what `repeated-call`, `logged-every-step`,
    `rarely-read-result` and `slow-tensor-construction` name."""
    known = _repeated(facts)
    named = sum(found.price.share for found in known)
    if any(not found.is_sampled for found in known):  # a rough share
        return named >= share / 2
    named += sum(found.price.share for found in seldom_needed(facts) if found.price.low >= LOW_FROM)
    named += sum(line.outside for line in lines_outside(facts) if _reads_a_list(facts, line.price.site))
    return named > 0 and share - named < _LEAST_SHARE[facts.device.present]


def _repeated(facts: Facts) -> list[SameAgain]:
    """What `repeated-call` names."""
    return [found for found in same_again(facts) if found.price.low >= LOW_FROM]


def _suspect_sampled(facts: Facts, spent: Intervals, lines: tuple[OutsideLine, ...], share: float) -> Suspicion:
    """The line that takes most of it, with its price: its share of a step that nothing else watched."""
    first, has_device = lines[0].price, facts.device.present
    calls = f", in `{first.callee}`" if first.callee else ""
    per_step_ns = round(share * facts.steps.usual_ns)
    function = outside_in_function(facts, first.site)
    is_spread = not has_device and function.share >= _SPREAD * first.share
    price = function if is_spread else first
    edit = _edit(facts, spent, ()) if has_device else without_share(facts, price.share, price.low, price.high)
    bound = format_share(replay(facts, edit).fraction) if edit is not None else ""
    how_much = f"{format_share(share)} of the step, {format_time(as_in_step_ns(facts, per_step_ns))},"
    what = "all of it" if has_device else f"all lines of `{first.site.function}`" if is_spread else "this line"
    limit = f"Without {what}, the step would be at most {bound} shorter."
    together = (
        f" All lines of `{first.site.function}` take {format_share(function.share)} outside of PyTorch."
        if function.share >= first.share + _NOTABLY_MORE
        else ""
    )
    does, fix = _habit(facts, Location.of(first.site), first.callee)
    return Suspicion(
        message=f"{_describe(facts, spent, how_much, None)} This line takes {format_share(first.share)} of the host's "
        f"time{calls}.{does}{together} {limit}",
        fix=fix,
        edit=edit,
        confidence=0.7,
        count=max(1, round(len(spent.start_ns) / facts.steps.measured_count)),
        places=Places.of_sites(line.price.site for line in lines),
        severity=None
        if has_device
        else _severity(facts, function.share if is_spread else lines[0].outside, edit, is_habit=bool(does)),
        evidence={
            "unattributed_ns_per_step": per_step_ns,
            "unattributed_share": round(share, 4),
            "line_share": round(first.share, 4),
            "line_share_low": round(first.low, 4),
            "line_share_high": round(first.high, 4),
            "function_share": round(function.share, 4),
            "callee": first.callee,
        },
    )


def _habit(facts: Facts, line: Location | None, callee: str = "") -> tuple[str, str]:
    """What the line's text says that it does, as a further sentence, and the fix; else nothing and what helps often."""
    advice = advice_on(facts, line.file, line.line, callee) if line is not None else None
    return (f" {advice.does}", advice.fix) if advice is not None else ("", _FIX)


def _severity(facts: Facts, outside: float, edit: Edit | None, *, is_habit: bool) -> Severity:
    """Without a GPU. It is never high: what of the line's work is necessary is not known. A part of a habit's is
    not."""
    least, surely = (HIGH_FROM, _SURE_HABIT) if is_habit else (_MUCH, HIGH_FROM)
    is_much = outside >= least and edit is not None and predict_saving(facts, edit).low >= surely
    return Severity.MEDIUM if is_much else Severity.LOW


def _is_usual(facts: Facts, spent: Intervals) -> bool:
    """Whether half of the measured steps have their share of that time: a program that the system stops for a while in
    one of them is not at fault."""
    steps, step = facts.steps, facts.steps.index_of(spent.start_ns)
    inside = step >= 0
    outside_ns = np.bincount(step[inside], length_ns(facts, spent.start_ns, spent.end_ns)[inside], len(steps))
    share = outside_ns / np.maximum(length_ns(facts, steps.start_ns, steps.end_ns), 1)
    return bool(np.median(share[steps.measured]) >= _LEAST_SHARE[facts.device.present] / 2)


def _is_spent_inside(facts: Facts) -> bool:
    """Whether samples show that plain steps spend their time inside PyTorch: then the recording or other programs held
    the recorded ones up."""
    return bool(line_prices(facts)) and sum(line.outside for line in lines_outside(facts)) < _LEAST_SHARE[False]


def _fits_plain_steps(facts: Facts, per_step_ns: int) -> bool:
    """Whether the device idles for about so long in a step without the profiler as it did as recorded; true if none was
    timed. Else the recording made most of it, by marks on lines or CUPTI's buffers."""
    step = step_time(facts)
    return step.source != "measured" or per_step_ns <= _MOST_OF_PLAIN * (step.ns - (step.busy_ns or 0))


def _describe(facts: Facts, spent: Intervals, how_much: str, around: Around | None) -> str:
    where = f", most of it in {around.label}" if around else ""
    if facts.device.present:
        operator = _operator_meanwhile(facts, spent)
        where += f", where {operator} runs on the CPU" if operator and around else ""
        return f"For {how_much} the device idles while the host neither launches work nor waits for it{where}."
    place = "in Python, in another library, or waiting for something"
    return f"{how_much} pass outside all of PyTorch's operators: {place}{where}."


def _function(around: Around) -> Location | None:
    """The function, at its ``def``; a range has no line."""
    frame = parse_frame(around.frame) if around.frame else None
    return Location.in_function(CallSite(*frame)) if frame else None


def _unexplained(facts: Facts, wanted: Bools) -> Intervals:
    """The long stretches of these steps that nothing explains."""
    steps = facts.steps
    known = _explained_idling(facts) if facts.device.present else _explained(facts)
    in_steps = union(steps.start_ns[wanted], steps.end_ns[wanted])
    free = in_steps.minus(known)
    least_ns = _LEAST_STRETCH_NS[facts.device.present]
    long = (length_ns(facts, free.start_ns, free.end_ns) >= least_ns) & ~_fills_a_tensor(facts, free)
    return Intervals(free.start_ns[long], free.end_ns[long])


def _of_main_thread(facts: Facts, free: Intervals) -> Intervals:
    """Without the stretches between two events of another thread that takes turns with the main one, such as autograd's
    in a backward pass: then it is that thread's turn."""
    events, tree, lane = facts.trace.events, facts.tree, facts.steps.main_lane
    kinds = (Category.OPERATOR, Category.COMPILED_CODE, Category.RUNTIME)
    rows = np.flatnonzero(facts.serial_lanes[events.lane] & facts.trace.in_categories(*kinds))
    if not rows.size:
        return free
    begun, ended = rows[np.argsort(events.start_ns[rows])], rows[np.argsort(tree.end_ns[rows])]
    after = np.searchsorted(events.start_ns[begun], free.end_ns).clip(max=len(rows) - 1)
    before = (np.searchsorted(tree.end_ns[ended], free.start_ns, side="right") - 1).clip(min=0)
    main = (events.lane[begun[after]] == lane) | (events.lane[ended[before]] == lane)
    return Intervals(free.start_ns[main], free.end_ns[main])


@derived_once
def _explained_idling(facts: Facts) -> Intervals:
    """When the device worked, or something else than arithmetic on the host kept it from working."""
    events, tree = facts.trace.events, facts.tree
    own = np.flatnonzero(facts.trace.in_categories(Category.HOST_MARK, Category.PAUSE))
    long = _host_arithmetic(facts)
    arithmetic = union(events.start_ns[long], tree.end_ns[long])
    parts = [when.minus(arithmetic) if reason == HOST_OPERATORS else when for reason, when in idle_parts(facts)]
    parts += [facts.device.any_busy, union(events.start_ns[own], tree.end_ns[own])]
    return union(*(np.concatenate([getattr(part, edge) for part in parts]) for edge in ("start_ns", "end_ns")))


@derived_once
def _host_arithmetic(facts: Facts) -> Rows:
    """The operators that take long themselves, whatever they call."""
    rows = facts.operators.rows
    return rows[facts.tree.self_ns(facts.trace.events)[rows] >= _LEAST_ARITHMETIC_NS]


def _operator_meanwhile(facts: Facts, spent: Intervals) -> str:
    """The operator that runs for half of that time or more; empty if there is none."""
    events, rows = facts.trace.events, _host_arithmetic(facts)
    if not rows.size:
        return ""
    covered = spent.covered_within(events.start_ns[rows], facts.tree.end_ns[rows])
    of_name = np.bincount(events.name_code[rows], covered)
    most = int(of_name.argmax())
    return facts.trace.names[most] if of_name[most] >= spent.total_ns / 2 else ""


@derived_once
def _explained(facts: Facts) -> Intervals:
    """When the host's threads that take turns did something that was recorded, or waited for other ranks."""
    events, tree = facts.trace.events, facts.tree
    kinds = (Category.OPERATOR, Category.COMPILED_CODE, Category.RUNTIME, Category.HOST_MARK, Category.PAUSE)
    rows = np.flatnonzero(facts.serial_lanes[events.lane] & (facts.trace.in_categories(*kinds) | facts.loading))
    updates = facts.updates.on(facts.serial_lanes[events.lane])
    waits_ns = blocked_time(facts)
    return union(
        np.concatenate([events.start_ns[rows], updates.start_ns, waits_ns[0]]),
        np.concatenate([tree.end_ns[rows], updates.end_ns, waits_ns[1]]),
    )


def _fills_a_tensor(facts: Facts, free: Intervals) -> Bools:
    """Stretches between making an empty tensor and its `to`: PyTorch reads a Python list, which
    slow-tensor-construction reports."""
    made = facts.tree.end_ns[named_operators(facts, "aten::empty")]
    handed_over = facts.trace.events.start_ns[named_operators(facts, "aten::to")]
    return among(free.start_ns, made) & among(free.end_ns, handed_over)


def _lines(facts: Facts, spent: Intervals) -> tuple[Hot, ...]:
    """The lines of the first located step under which most of that time passes. An optimizer's step is PyTorch's own
    Python, and a step of the program ends there: no line of the program would be the place to begin."""
    located = np.flatnonzero(facts.steps.located)
    if not located.size:
        return ()
    long = _unexplained(facts, np.arange(len(facts.steps)) == located[0])
    there = intersection(long, _where_located(facts, spent))
    there = there if there.total_ns else long
    if not there.total_ns:
        return ()
    updating = set(facts.lines.site[facts.updates.rows].tolist())
    lines = [line for line in lines_by_time(facts, there) if line.site not in updating]
    return tuple(line for line in lines[:_MOST_LINES] if line.fraction >= _NOTABLE_SHARE)


def _where_located(facts: Facts, spent: Intervals) -> Intervals:
    """The stretches of the located step between the operators that these stretches of measured steps lie between. The
    located step alone may stand still where the others do not: at what is done for the first time, or by chance."""
    events, tree, rows = facts.trace.events, facts.tree, program_operators(facts)
    after = np.searchsorted(events.start_ns[rows], spent.end_ns)
    before = np.searchsorted(tree.end_ns[rows], spent.start_ns, side="right") - 1
    known = (before >= 0) & (after < len(rows))
    first, last = (facts.repeats.row[rows[at[known]]] for at in (before, after))
    known = (first >= 0) & (last >= 0)
    begin, end = tree.end_ns[first[known]], events.start_ns[last[known]]
    return union(begin[begin < end], end[begin < end])


def _edit(facts: Facts, spent: Intervals, lines: tuple[Hot, ...]) -> Edit | None:
    """With a device all of that time goes, without one the part of the line that leads; None if no line is known."""
    if facts.device.present:
        return shrink_spans(spent.start_ns, spent.end_ns, 0, _UNCERTAINTY)
    if not lines:
        return None
    length = length_ns(facts, spent.start_ns, spent.end_ns)
    return shrink_spans(spent.start_ns, spent.end_ns, ((1 - lines[0].fraction) * length).astype(np.int64), _UNCERTAINTY)
