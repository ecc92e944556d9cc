"""Noticing when a library reads or sets an attribute, so that profkit is not on the stack while the library runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profkit.collect.program.guard import uncompiled


def noticed(
    name: str, on_read: Callable[[Any], object] | None = None, on_write: Callable[[Any, Any], object] | None = None
) -> property:
    """A property for a class that stands in for the attribute ``name`` of its instances; the value stays in their
    ``__dict__``.

    Each read calls ``on_read`` with the instance first; each write calls ``on_write`` with the instance and the value
    afterwards. Neither may raise.
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
