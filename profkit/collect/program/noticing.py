"""Noticing that a library's code reads or sets an attribute: profkit is not on the stack while that code runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profkit.collect.program.guard import uncompiled


def noticed(
    name: str, on_read: Callable[[Any], object] | None = None, on_write: Callable[[Any, Any], object] | None = None
) -> property:
    """A property for a class, in place of the attribute ``name`` of its instances, which stays in their ``__dict__``.

    ``on_read`` is called with the instance before the attribute is read, ``on_write`` with instance and value after it
    is set; they must not raise.
    """

    @uncompiled
    def read(instance: Any) -> Any:
        if name not in vars(instance):
            raise AttributeError(name)
        if on_read is not None:
            on_read(instance)
        return vars(instance)[name]

    @uncompiled
    def write(instance: Any, value: Any) -> None:
        vars(instance)[name] = value
        if on_write is not None:
            on_write(instance, value)

    return property(read, write)
