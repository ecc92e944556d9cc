"""A loop over one of PyTorch's cells becomes a call of its layer, before the loop. What else the loop does stays.

The layer draws its weights as the cell does, in the same order, so a program with a seed begins with the same numbers.
"""

from __future__ import annotations

import libcst
from msgspec import Struct

from profkit.findings.values import Finding
from profkit.rules.changes.base import (
    Argument,
    Edit,
    ProgramText,
    called_name,
    elements_of,
    text_of,
    with_new_argument,
)
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.rounds import (
    refuse_earlier_reads,
    refuse_later_reads,
    refuse_no_state,
    refuse_no_tensor,
    refuse_other_rounds,
    refuse_uncertain_number,
)
from profkit.rules.changes.scopes import (
    are_set,
    assigned_value,
    block_of,
    fresh_name,
    is_set,
    lies_in,
    loops_around,
    mutated,
    names_in,
    scope_of,
    uses,
    with_statements,
)
from profkit.rules.changes.sharing import refuse_declared

_LAYERS = {"RNNCell": "RNN", "GRUCell": "GRU", "LSTMCell": "LSTM"}
_DIMENSIONS = 3
"""Of all states: rows, rounds and features, the first two in either order."""
_SIZES = 2
"""Of a cell and its layer, the input's and the state's. Behind these their arguments differ."""
_SAVING = frozenset(("state_dict", "load_state_dict", "save", "load", "load_file", "save_file", "from_pretrained"))
_OF_ANY_MODULE = ("parameters", "to", "train", "eval", "zero_grad", "requires_grad_")
_PLACING = frozenset(("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "train", "eval"))
"""Methods that give the module itself."""
_JUMPS = (libcst.Break, libcst.Continue, libcst.Return, libcst.Yield, libcst.Await, libcst.Raise)


class _Round(Struct, frozen=True):
    """What each round does: ``h, c = cell(input, (h, c))``. ``own`` is that line, ``before`` one that makes the
    input."""

    call: libcst.Call
    states: tuple[str, ...]
    given: libcst.BaseExpression
    own: libcst.SimpleStatementLine
    before: libcst.SimpleStatementLine | None = None


class _Sequence(Struct, frozen=True):
    """All inputs, with time as dimension ``axis``. ``index`` is the variable that counts the rounds, ``item`` the one
    that holds the input; one of them may be empty. ``source`` is a part of the ``whole``, or all of it."""

    source: str
    axis: int
    index: str = ""
    item: str = ""
    whole: str = ""

    def at(self, name: str, index: str) -> str:
        """The states of one round."""
        return f"{name}[:, {index}]" if self.axis else f"{name}[{index}]"


class _Filled(Struct, frozen=True):
    """A tensor that the loop fills with the states, and where it is made."""

    begun: libcst.SimpleStatementLine
    name: str


class _Rows(Struct, frozen=True):
    """What is made of each state alone: ``layer`` takes all at once in place of ``joined``, the list's only reader. It
    is empty where the states themselves are listed."""

    begun: libcst.SimpleStatementLine
    layer: str
    joined: libcst.Call


def unrolled_recurrence(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    statement = text.statement_at(finding.location.line)
    loop = _loop_of(text, statement)
    found = _round_of(loop, statement)
    sequence = _sequence_of(text, loop, found.given)
    made = _construction(text, found.call, statement)
    if (len(found.states) > 1) != (called_name(made) == "LSTMCell"):
        raise Refused("the two states of the cell go by one name")
    _refuse_other_states(text, loop, found)
    refuse_other_rounds(text, loop, found.call.args[0].value, sequence.index, found.before)
    refuse_no_tensor(text, loop, libcst.parse_expression(sequence.whole))
    if not sequence.index:
        refuse_earlier_reads(text, loop, found.own, found.states[0])
    if changed := are_set(text, loop, names_in(libcst.parse_expression(sequence.source))):
        raise Refused(f"`{min(changed)}`, of which the inputs are read, changes in the loop")
    edits: dict[libcst.CSTNode, Edit] = {made: lambda call: _as_layer(text, call, sequence.axis)}
    edits |= _without_calls(text, loop, found, sequence)
    after = text.edited(edits)
    if _SAVING & names_in(text.module):
        raise AltersNumbers("weights that are saved or loaded get other names (weight_ih_l0 for weight_ih)", after)
    return after


def _loop_of(text: ProgramText, statement: libcst.SimpleStatementLine) -> libcst.For:
    loops = loops_around(text, statement)
    if not loops or not isinstance(loops[0], libcst.For):
        raise Refused("the line stands in no `for` loop of its function")
    loop = loops[0]
    if statement not in loop.body.body or loop.orelse is not None or loop.asynchronous is not None:
        raise Refused("the cell is not called in each round alike")
    if text.holds(loop.body, *_JUMPS):
        raise Refused("the loop may end before the sequence does")
    return loop


def _round_of(loop: libcst.For, statement: libcst.SimpleStatementLine) -> _Round:
    part = statement.body[0]
    call = part.value if isinstance(part, libcst.Assign) and len(part.targets) == 1 else None
    if not isinstance(part, libcst.Assign) or not isinstance(call, libcst.Call):
        raise Refused("the line does not assign the cell's state")
    if len(call.args) != _SIZES or any(one.star or one.keyword is not None for one in call.args):
        raise Refused("the cell is not called with an input and a state")
    states = _names(part.targets[0].target)
    if not states or states != _names(call.args[1].value):
        raise Refused("the state that the cell gives is not the one that it takes")
    given = call.args[0].value
    before = _input_before(loop, statement, given) if isinstance(given, libcst.Name) else None
    if before is None:
        return _Round(call, states, given, statement)
    value = before.body[0]
    assert isinstance(value, libcst.Assign)
    return _Round(call, states, value.value, statement, before)


def _names(value: libcst.BaseExpression) -> tuple[str, ...]:
    """``h`` or ``h, c``."""
    parts = elements_of(value) if isinstance(value, libcst.Tuple) else [value]
    return tuple(one.value for one in parts if isinstance(one, libcst.Name)) if len(parts) <= _SIZES else ()


def _input_before(
    loop: libcst.For, statement: libcst.SimpleStatementLine, given: libcst.BaseExpression
) -> libcst.SimpleStatementLine | None:
    """``x = xs[:, t]`` in the same round, if the cell takes ``x``."""
    for line in loop.body.body:
        if line is statement or not isinstance(line, libcst.SimpleStatementLine):
            break
        part = line.body[0]
        if isinstance(part, libcst.Assign) and [text_of(one.target) for one in part.targets] == [text_of(given)]:
            return line
    return None


def _sequence_of(text: ProgramText, loop: libcst.For, given: libcst.BaseExpression) -> _Sequence:
    head, target = loop.iter, loop.target
    if isinstance(target, libcst.Name) and _is_call(head, "range"):
        assert isinstance(head, libcst.Call)
        refuse_uncertain_number(head.args[0].value)
        return _indexed(text, given, target.value, head.args[0].value)
    index = ""
    if isinstance(target, libcst.Tuple) and len(target.elements) == 2 and _is_call(head, "enumerate"):
        assert isinstance(head, libcst.Call)
        index, head, target = text_of(target.elements[0].value), head.args[0].value, target.elements[1].value  # type: ignore[assignment]  # any expression
    if not isinstance(target, libcst.Name) or text_of(given) != target.value:
        raise Refused("the input of the cell is computed in the loop")
    if isinstance(head, libcst.Call) and called_name(head) == "unbind" and isinstance(head.func, libcst.Attribute):
        axis = "".join(text_of(one.value) for one in head.args) or "0"
        return _plain(head.func.value, axis, index, target.value)
    return _plain(head, "0", index, target.value)


def _is_call(value: libcst.BaseExpression, name: str) -> bool:
    """A call of a function of Python with one argument."""
    is_one = isinstance(value, libcst.Call) and isinstance(value.func, libcst.Name) and value.func.value == name
    return is_one and isinstance(value, libcst.Call) and len(value.args) == 1 and not value.args[0].star


def _plain(value: libcst.BaseExpression, axis: str, index: str, item: str) -> _Sequence:
    if not isinstance(value, (libcst.Name, libcst.Attribute)) or axis not in ("0", "1"):
        raise Refused("the sequence is no variable whose time is its first or second dimension")
    return _Sequence(text_of(value), int(axis), index, item, text_of(value))


def _indexed(text: ProgramText, given: libcst.BaseExpression, index: str, number: libcst.BaseExpression) -> _Sequence:
    """Of ``xs[:, t]`` or ``xs[t]`` in ``for t in range(rounds)``."""
    if not isinstance(given, libcst.Subscript):
        raise Refused("the input of the cell is computed in the loop")
    parts = [text_of(one.slice).strip() for one in given.slice]
    axis = parts.index(index) if index in parts else -1
    if axis not in (0, 1) or any(part != ":" for part in parts[:axis] + parts[axis + 1 :]):
        raise Refused("the input of the cell is not a row of a sequence")
    whole = _plain(given.value, str(axis), index, "")
    lengths = {f"{whole.source}.size({axis})", f"{whole.source}.shape[{axis}]"} | (
        {f"len({whole.source})"} if axis == 0 else set()
    )
    rounds = text_of(number)
    if rounds in lengths or _is_unpacked(text, number, whole.source, axis):
        return whole
    cut = f"{whole.source}[:, :{rounds}]" if axis else f"{whole.source}[:{rounds}]"
    return _Sequence(cut, axis, index, whole=whole.whole)


def _is_unpacked(text: ProgramText, number: libcst.BaseExpression, whole: str, axis: int) -> bool:
    """Whether a variable is the length of the sequence by ``rows, length, _ = xs.size()``, and nothing else."""
    if not isinstance(number, libcst.Name):
        return False
    scope = scope_of(text, number)
    kept = [one for variable in (number.value, whole) for one in uses(text, scope, variable) if is_set(text, one)]
    for one in text.nodes(libcst.Assign):
        target = one.targets[0].target
        is_size = text_of(one.value) in (f"{whole}.size()", f"{whole}.shape") and scope_of(text, one) is scope
        if is_size and len(one.targets) == 1 and isinstance(target, libcst.Tuple) and len(target.elements) > axis:
            inside = [name for name in kept if not isinstance(next(text.ancestors(name)), libcst.Param)]
            return text_of(target.elements[axis].value) == number.value and len(inside) == 1
    return False


def _construction(text: ProgramText, call: libcst.Call, near: libcst.CSTNode) -> libcst.Call:
    """Where the cell is made. Nothing else may use it."""
    name = text_of(call.func)
    made = _placed(assigned_value(text, name, near))
    if not isinstance(made, libcst.Call) or called_name(made) not in _LAYERS:
        raise Refused(f"`{name}` is none of PyTorch's cells")
    plain = [one for one in made.args if one.keyword is None]
    if any(one.star for one in made.args) or len(plain) > _SIZES:
        raise Refused("the cell is made with arguments that its layer takes in another order")
    last = name.rpartition(".")[2]
    named = [one for one in text.nodes(libcst.Name) if one.value == last and not _is_of_any_module(text, one)]
    if len(named) != 2:  # where it is made and where it is called
        raise Refused(f"`{name}` is used elsewhere, too")
    _refuse_other_class(text, made)
    return made


def _placed(value: libcst.BaseExpression) -> libcst.BaseExpression:
    """``nn.LSTMCell(3, 4)`` of ``nn.LSTMCell(3, 4).to(device)``."""
    while (
        isinstance(value, libcst.Call) and isinstance(value.func, libcst.Attribute) and called_name(value) in _PLACING
    ):
        value = value.func.value
    return value


def _refuse_other_class(text: ProgramText, made: libcst.Call) -> None:
    """A class of that name from elsewhere, or one that the program looks for among its modules."""
    kind = called_name(made)
    whole = f"torch.nn.{kind}"
    if text_of(made.func) not in {whole, text.known_as(whole), f"{text.known_as('torch.nn')}.{kind}"}:
        raise Refused(f"nothing shows that `{text_of(made.func)}` is PyTorch's")
    for one in text.calls("isinstance", "issubclass"):
        if kind in names_in(one):
            raise Refused(f"line {text.line_of(one)} looks for a `{kind}`")


def _is_of_any_module(text: ProgramText, name: libcst.Name) -> bool:
    """``cell.parameters()``, ``self.cell.to(device)``: what layers have as cells do."""
    inner: libcst.CSTNode = name
    for parent in text.ancestors(name):
        if not isinstance(parent, libcst.Attribute):
            return False
        if parent.value is inner:
            return parent.attr.value in _OF_ANY_MODULE
        inner = parent
    return False


def _refuse_other_states(text: ProgramText, loop: libcst.For, found: _Round) -> None:
    own = {id(one) for name in found.states for one in uses(text, found.own, name)}
    for name in found.states:
        refuse_declared(text, name)
        others = [one for one in uses(text, loop, name) if id(one) not in own]
        if name != found.states[0] and others:
            raise Refused(f"line {text.line_of(others[0])} reads `{name}` in each round")
        if mutated(text, loop, {name}) or any(is_set(text, one) for one in others):
            raise Refused(f"`{name}` changes in the loop besides")
        values = [_value_of(one, name) for one in _begun(text, loop, name)]
        if not values:
            raise Refused(f"nothing shows that `{name}` begins as a tensor")
        for value in values:
            refuse_no_state(text, loop, value)


def _begun(text: ProgramText, loop: libcst.For, name: str) -> list[libcst.Assign]:
    """The plain assignments to a variable in the function, outside of the loop."""
    scope = scope_of(text, loop)
    return [
        one
        for one in text.nodes(libcst.Assign)
        if any(name in _names(target.target) for target in one.targets)
        and scope_of(text, one) is scope
        and not lies_in(text, one, loop)
    ]


def _value_of(part: libcst.Assign, name: str) -> str:
    """What an assignment gives to a variable, of ``h, c = a, b`` too."""
    names = next(_names(target.target) for target in part.targets if name in _names(target.target))
    if len(names) > 1 and isinstance(part.value, libcst.Tuple):
        return text_of(part.value.elements[names.index(name)].value)
    return text_of(part.value)


def _as_layer(text: ProgramText, call: libcst.Call, axis: int) -> libcst.Call:
    layer = _LAYERS[called_name(call)]
    if isinstance(call.func, libcst.Attribute):
        call = call.with_changes(func=call.func.with_changes(attr=libcst.Name(layer)))
    else:
        call = call.with_changes(func=libcst.parse_expression(f"{text.known_as('torch.nn')}.{layer}"))
    return with_new_argument(call, "batch_first", "True") if axis else call


def _without_calls(
    text: ProgramText, loop: libcst.For, found: _Round, sequence: _Sequence
) -> dict[libcst.CSTNode, Edit]:
    """The loop with one call before it; its states need not be made where they are the zeros that the layer takes."""
    zeros = _zeros(text, loop, found.states)
    begun = "" if zeros else _given(found.states)
    edits = _with_all_states(text, loop, found, sequence, f"{text_of(found.call.func)}({sequence.source}{begun})")
    return edits | {one: lambda _: libcst.RemoveFromParent() for one in zeros}


def _given(states: tuple[str, ...]) -> str:
    each = ", ".join(f"{name}[None]" for name in states)
    return f", ({each})" if len(states) > 1 else f", {each}"


def _zeros(text: ProgramText, loop: libcst.For, states: tuple[str, ...]) -> list[libcst.SimpleStatementLine]:
    """The lines beside the loop that make all states of zeros, if nothing else reads or sets these before it."""
    around = [one for one in block_of(text, loop) if isinstance(one, libcst.SimpleStatementLine)]
    places = [one for name in states for one in _begun(text, loop, name)]
    lines = [line for one in places for line in around if lies_in(text, one, line)]
    for name in states:
        begun = _begun(text, loop, name)
        others = [one for one in uses(text, scope_of(text, loop), name) if not lies_in(text, one, loop)]
        early = [one for one in others if text.line_of(one) < text.line_of(loop)]
        if len(begun) != 1 or not _are_zeros(text, _value_of(begun[0], name)) or len(early) != 1:
            return []
    is_plain = all(len(line.body) == 1 and _sets_only(line, states) for line in lines)
    return list(dict.fromkeys(lines)) if is_plain and len(lines) == len(states) else []


def _sets_only(line: libcst.SimpleStatementLine, states: tuple[str, ...]) -> bool:
    part = line.body[0]
    names = [_names(one.target) for one in part.targets] if isinstance(part, libcst.Assign) else [()]
    return all(one and {*one} <= {*states} for one in names)


def _are_zeros(text: ProgramText, value: str) -> bool:
    """``torch.zeros(rows, width)`` or ``x.new_zeros(rows, width)``, of the type that the layer takes by itself."""
    made = libcst.parse_expression(value)
    if not isinstance(made, libcst.Call) or not isinstance(made.func, libcst.Attribute):
        return False
    is_torch = text_of(made.func) in {"torch.zeros", f"{text.known_as('torch')}.zeros"}
    sizes = [one for one in made.args if one.keyword is None and not one.star]
    others = {one.keyword.value if one.keyword is not None else "*" for one in made.args if one not in sizes}
    return (is_torch or called_name(made) == "new_zeros") and len(sizes) == _SIZES and others <= {"device"}


def _with_all_states(
    text: ProgramText, loop: libcst.For, found: _Round, sequence: _Sequence, called: str
) -> dict[libcst.CSTNode, Edit]:
    all_states, state = fresh_name(text, "states", "outputs", "all_states"), found.states[0]
    is_last_read = any(_is_read_outside(text, loop, name) for name in found.states[1:])
    is_named = any(not is_set(text, one) for one in uses(text, scope_of(text, loop), "_"))
    rest = fresh_name(text, "rest") if is_named else "_"
    last = f"({rest}, {found.states[-1]})" if is_last_read else rest
    before = [f"{all_states}, {last} = {called}"]
    before += [f"{found.states[-1]} = {found.states[-1]}[0]"] if is_last_read else []
    alone = _rows_of(text, loop, found, sequence)
    if alone is not None:
        refuse_later_reads(text, loop, {sequence.index, sequence.item})
        made = libcst.parse_expression(f"{alone.layer}({all_states})" if alone.layer else all_states)
        return {
            loop: lambda one: _in_place_of(text, one, tuple(before)),
            alone.begun: lambda _: libcst.RemoveFromParent(),
            alone.joined: lambda _: made,
        }
    filled = _filled(text, loop, found, sequence)
    if filled is not None:
        refuse_later_reads(text, loop, {sequence.index, sequence.item})
        before[0] = f"{filled.name}, {last} = {called}"
        return {
            loop: lambda one: _in_place_of(text, one, tuple(before)),
            filled.begun: lambda _: libcst.RemoveFromParent(),
        }
    if len(loop.body.body) == 1:
        refuse_later_reads(text, loop, {sequence.index, sequence.item})
        end = f"{state} = {sequence.at(all_states, '-1')}"
        return {loop: lambda one: _in_place_of(text, one, (*before, end))}
    edits = _reading_states(text, loop, found, sequence, all_states)
    edits[loop] = lambda one: with_statements(text, tuple(before), one)
    return edits


def _reading_states(
    text: ProgramText, loop: libcst.For, found: _Round, sequence: _Sequence, all_states: str
) -> dict[libcst.CSTNode, Edit]:
    """The loop goes on, and takes each state from all."""
    line, state = found.own, found.states[0]
    if sequence.index:
        each = text.parsed(f"{state} = {sequence.at(all_states, sequence.index)}")
        return {line: lambda one: one.with_changes(body=each.body)}
    rows = f"{all_states}.unbind(1)" if sequence.axis else all_states
    pairs = f"zip({text_of(loop.iter)}, {rows})"
    is_read = len(uses(text, loop.body, sequence.item)) > 1
    if not is_read:
        refuse_later_reads(text, loop, {sequence.item})
    target, head = (f"{sequence.item}, {state}", pairs) if is_read else (state, rows)
    return {
        line: lambda _: libcst.RemoveFromParent(),
        loop.target: lambda _: libcst.parse_expression(target),
        loop.iter: lambda _: libcst.parse_expression(head),
    }


def _rows_of(text: ProgramText, loop: libcst.For, found: _Round, sequence: _Sequence) -> _Rows | None:
    """If all that is left in the loop is ``outputs.append(h)`` or ``outputs.append(head(h))``, and the list goes into
    ``torch.stack`` alone."""
    lines = [*loop.body.body]
    part = lines[-1].body[0] if isinstance(lines[-1], libcst.SimpleStatementLine) else None
    call = part.value if isinstance(part, libcst.Expr) else None
    if lines[:-1] != [found.own] or not isinstance(call, libcst.Call) or called_name(call) != "append":
        return None
    kept = call.func.value if isinstance(call.func, libcst.Attribute) else None
    given = call.args[0].value if len(call.args) == 1 else None
    state = found.states[0]
    if not isinstance(kept, libcst.Name) or given is None or _is_read_outside(text, loop, state):
        return None
    layer = text_of(given.func) if isinstance(given, libcst.Call) else ""
    if text_of(given) not in (state, f"{layer}({state})"):
        return None
    begun, joined = _list_of(text, loop, kept)
    is_row = joined is not None and _axis_of(joined) == str(sequence.axis)
    if begun is None or joined is None or not is_row or not (layer == "" or _is_linear(text, layer, loop)):
        return None
    return _Rows(begun, layer, joined)


def _filled(text: ProgramText, loop: libcst.For, found: _Round, sequence: _Sequence) -> _Filled | None:
    """Where a tensor is made for all states, if the loop only puts them there: ``out[:, t] = h``. It has room for these
    and for no more."""
    lines = [*loop.body.body]
    part = lines[-1].body[0] if isinstance(lines[-1], libcst.SimpleStatementLine) else None
    if lines[:-1] != [found.own] or not isinstance(part, libcst.Assign) or text_of(part.value) != found.states[0]:
        return None
    place = part.targets[0].target
    if not isinstance(place, libcst.Subscript) or not isinstance(place.value, libcst.Name) or not sequence.index:
        return None
    name, index = place.value.value, [text_of(one.slice).strip() for one in place.slice]
    is_row = index.count(sequence.index) == 1 and index.index(sequence.index) == sequence.axis
    is_row = is_row and {*index} <= {":", sequence.index}
    begun = [one for one in block_of(text, loop) if isinstance(one, libcst.SimpleStatementLine) and _makes(one, name)]
    if not is_row or len(begun) != 1 or _is_read_outside(text, loop, found.states[0]):
        return None
    others = [one for one in uses(text, scope_of(text, loop), name) if not lies_in(text, one, begun[0])]
    if any(text.line_of(one) < text.line_of(loop) or (is_set(text, one) and one is not place.value) for one in others):
        return None
    part = begun[0].body[0]
    made = part.value if isinstance(part, libcst.Assign) else None
    given = made.args if isinstance(made, libcst.Call) else ()
    sizes = [text_of(one.value) for one in given if one.keyword is None]
    rounds = text_of(loop.iter.args[0].value)  # type: ignore[attr-defined]  # a loop with an index has a range
    return _Filled(begun[0], name) if len(sizes) == _DIMENSIONS and sizes[sequence.axis] == rounds else None


def _makes(line: libcst.SimpleStatementLine, name: str) -> bool:
    """``name = torch.zeros(…)``, with sizes that stand there one by one, and with no type of its own."""
    part = line.body[0]
    if not isinstance(part, libcst.Assign) or [text_of(one.target) for one in part.targets] != [name]:
        return False
    made = part.value
    if not isinstance(made, libcst.Call) or called_name(made) not in ("zeros", "empty", "new_zeros", "new_empty"):
        return False
    return {one.keyword.value for one in made.args if one.keyword is not None} <= {"device"}


def _list_of(
    text: ProgramText, loop: libcst.For, kept: libcst.Name
) -> tuple[libcst.SimpleStatementLine | None, libcst.Call | None]:
    """Where a list begins, beside the loop, and the only call that takes it; None if it is used otherwise."""
    others = [one for one in uses(text, scope_of(text, loop), kept.value) if one is not kept]
    lines = [one for one in block_of(text, loop) if isinstance(one, libcst.SimpleStatementLine)]
    begun = [one for one in lines if text_of(one).strip() == f"{kept.value} = []"]
    taken = [around for one in others for around in [next(text.ancestors(one))] if isinstance(around, libcst.Arg)]
    if len(others) != 2 or len(begun) != 1 or len(taken) != 1 or text.line_of(begun[0]) > text.line_of(loop):
        return None, None
    joined = next(text.ancestors(taken[0]))
    is_joined = isinstance(joined, libcst.Call) and called_name(joined) == "stack" and joined.args[0] is taken[0]
    return begun[0], joined if is_joined and isinstance(joined, libcst.Call) else None


def _axis_of(joined: libcst.Call) -> str:
    given = Argument("dim", 1).find(joined)
    return "0" if given is None and len(joined.args) == 1 else text_of(given.value) if given is not None else ""


def _is_linear(text: ProgramText, layer: str, near: libcst.CSTNode) -> bool:
    """Whether it is a layer that does the same to each row."""
    try:
        made = _placed(assigned_value(text, layer, near))
    except Refused:
        return False
    return isinstance(made, libcst.Call) and text_of(made.func) in {"nn.Linear", "torch.nn.Linear"}


def _is_read_outside(text: ProgramText, loop: libcst.For, name: str) -> bool:
    """Whether anything reads the last value, be it the loop itself in a next round of one around it."""
    begun, around = _begun(text, loop, name), loops_around(text, loop)
    if any(not any(lies_in(text, one, outer) for one in begun) for outer in around):
        return True
    others = (one for one in uses(text, scope_of(text, loop), name) if not is_set(text, one))
    outside = [one for one in others if not lies_in(text, one, loop)]
    return any(around or text.line_of(one) > text.line_of(loop) for one in outside)


def _in_place_of(
    text: ProgramText, loop: libcst.For, sources: tuple[str, ...]
) -> libcst.FlattenSentinel[libcst.CSTNode]:
    first, *others = (text.parsed(source) for source in sources)
    return libcst.FlattenSentinel([first.with_changes(leading_lines=loop.leading_lines), *others])
