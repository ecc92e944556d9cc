"""Calls that send a tensor to a device: ``x.to(device)``, ``x.cuda()``."""

from __future__ import annotations

import libcst

from profkit.rules.changes.base import ProgramText, text_of
from profkit.rules.changes.refusing import Refused

_DEVICES = ("cuda", "mps", "xpu")


def sent_on(text: ProgramText, line: int) -> list[libcst.Call]:
    """The calls that send something to a device and that a line is part of."""
    return [call for call in text.calls("to", "cuda") if text.covers(call, line) and device_of(call)]


def only_sent(text: ProgramText, line: int) -> libcst.Call:
    """The only one of them. Raises `Refused` if there is not exactly one."""
    sent = sent_on(text, line)
    if len(sent) != 1:
        raise Refused(f"{len(sent) or 'no'} tensor{'s' * (len(sent) != 1)} sent to a device on that line")
    return sent[0]


def receiver(call: libcst.Call) -> libcst.BaseExpression:
    """What a method is called on."""
    assert isinstance(call.func, libcst.Attribute)
    return call.func.value


def device_of(call: libcst.Call) -> str:
    """The source of the device that a call sends a tensor to; empty for any other call."""
    options = [given.keyword.value for given in call.args if given.keyword is not None]
    places = [given.value for given in call.args if given.keyword is None]
    if not isinstance(call.func, libcst.Attribute) or options not in ([], ["non_blocking"]):
        return ""
    if call.func.attr.value == "cuda":
        return '"cuda"' if not places else ""
    if call.func.attr.value != "to" or len(places) != 1 or call.args[0].star:
        return ""
    return text_of(places[0]) if _is_device(places[0]) else ""


def _is_device(value: libcst.BaseExpression) -> bool:
    """A name that ends in ``device``, a device as a string, or ``torch.device(…)``. Types of numbers look different."""
    if isinstance(value, libcst.SimpleString):
        return str(value.evaluated_value).partition(":")[0] in _DEVICES
    named = value.func if isinstance(value, libcst.Call) else value
    return text_of(named).lower().endswith("device")
