"""The tensor is made on the device. Random numbers that the device draws are others than the host's."""

from __future__ import annotations

import libcst

from profkit.findings.values import Finding
from profkit.rules.changes.base import ProgramText, called_name, refuse_hidden_arguments, text_of, with_new_argument
from profkit.rules.changes.refusing import AltersNumbers, Refused
from profkit.rules.changes.sending import device_of, only_sent, receiver

_SAME = frozenset(("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros"))
"""Functions that make the same numbers on every device."""
_RANDOM = frozenset(("rand", "randint", "randn", "randperm"))
_SHAPES = frozenset(
    ("expand", "flatten", "permute", "repeat", "reshape", "squeeze", "t", "transpose", "unsqueeze", "view")
)
"""Methods that may stand between the two: they work alike on every device."""


def host_created_tensor(text: ProgramText, finding: Finding) -> bytes:
    assert finding.location is not None
    sent = only_sent(text, finding.location.line)
    made = _factory(sent)
    new = with_new_argument(made, "device", device_of(sent))
    whole = receiver(sent)
    changed = new if whole is made else whole.deep_replace(made, new)
    assert isinstance(changed, libcst.BaseExpression)
    after = text.replaced(sent, changed)
    if called_name(made) in _RANDOM:
        raise AltersNumbers("the device draws other random numbers than the host", after)
    return after


def _factory(sent: libcst.Call) -> libcst.Call:
    """The call that makes the tensor, at the beginning of a chain of changes of its shape."""
    node = receiver(sent)
    while isinstance(node, libcst.Call) and isinstance(node.func, libcst.Attribute):
        name = node.func.attr.value
        if name in _SAME | _RANDOM and text_of(node.func.value) == "torch":
            refuse_hidden_arguments(node)
            given = {one.keyword.value for one in node.args if one.keyword is not None}
            if taken := given & {"device", "out", "pin_memory", "generator", "requires_grad"}:
                raise Refused(f"the tensor is made with `{min(taken)}=`")
            return node
        if name not in _SHAPES:
            break
        node = node.func.value
    raise Refused("what is sent is not made by a function of PyTorch's on that line")
