"""The objects inside an object, through which the user's names may keep tensors alive.

None of the user's code runs: containers are read with the methods of their built-in base, and objects through their
``__dict__`` and slots, never through their own attribute access or iteration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from types import FrameType, FunctionType, GeneratorType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from profkit.collect.program.engine import node_of
from profkit.source.attributes import attributes_of, names_of
from profkit.source.code import module_names, source_file
from profkit.source.growth import Origin
from profkit.source.syntax import ANY_ITEM, Parts

_MAX_NAMED_KEYS = 64
_SAMPLE = 100
"""Elements sampled from each end of a longer sequence; they stand for all of it."""
_LARGE_BYTES = 1 << 20
"""Buffers from this size on count: models have thousands, but few large ones."""
_PLAIN = frozenset((int, float, complex, bool, str, bytes, bytearray, range, slice, type(None), ModuleType))
_OWNED_BY_MODULE = frozenset(("_parameters", "_buffers", "_modules"))
_CONTAINERS: tuple[type[Any], ...] = (dict, list, tuple, deque, set, frozenset)
_GROWING = (dict, list, deque, set)


class Reached(NamedTuple):
    """An object and the name that reached it. ``weight`` is the number of objects that it stands for.

    Everything inside a sequence counts under the sequence's name (``is_element``), except containers of its elements,
    such as ``probes[*].readings``: they may grow while the sequence does not. ``is_bounded``: a container on the way
    drops its oldest element when it is full.
    """

    value: object
    parts: Parts
    origin: Origin
    depth: int = 0
    weight: float = 1.0
    is_element: bool = False
    is_bounded: bool = False

    def child(self, part: str, value: object, origin: Origin | None = None) -> Reached:
        """``value`` as reached from this object. A model's submodules add no depth."""
        parts = self.parts if self.is_element else (*self.parts, part)
        are_modules = issubclass(type(value), nn.Module) and issubclass(type(self.value), nn.Module)
        depth = self.depth if are_modules else self.depth + 1
        return Reached(value, parts, origin or self.origin, depth, self.weight, self.is_element, self.is_bounded)

    def element(self, value: object, weight: float) -> Reached:
        weight *= self.weight
        return Reached(value, self.parts, self.origin, self.depth + 1, weight, True, self.is_bounded)


def named_values(names: Mapping[str, Any], origin: Origin) -> Iterator[Reached]:
    """The variables of a frame or a module that may hold something."""
    for name, value in list(names.items()):
        if may_hold(value) and not name.startswith("__"):
            yield Reached(value, (name,), origin)


def may_hold(value: object) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return False
    base = _base_of(kind)
    return base is None or base.__len__(value) > 0


class Reach:
    """Looks into objects. ``suspended`` holds the frames of the generators whose variables were read."""

    def __init__(self, is_user: Mapping[str, bool]) -> None:
        self.suspended: list[FrameType] = []
        self._is_user = is_user
        self._owners: dict[tuple[type, int, Origin], Origin] = {}

    def look_into(self, reached: Reached) -> Iterable[Reached]:
        """What ``reached`` holds directly; nothing for a library's object."""
        value: Any = reached.value
        kind = type(value)
        base = _base_of(kind)
        if base is not None:
            reached = reached._replace(origin=self._origin_in(kind, reached))
            return _items(value, reached) if base is dict else _sequence(base, value, reached)
        if kind in (GeneratorType, FunctionType):
            return self._suspended(value.gi_frame) if kind is GeneratorType else self._captured(value)
        if issubclass(kind, type) and self._is_user_class(value):
            return self._attributes(names_of(value), value, reached)
        if issubclass(kind, (nn.Module, SimpleNamespace)) or self._is_user_class(kind):
            return self._attributes(_state_of(value), kind, reached)
        return ()

    def _suspended(self, frame: FrameType | None) -> Iterator[Reached]:
        if frame is not None and self._is_user[frame.f_code.co_filename]:
            self.suspended.append(frame)
            yield from named_values(frame.f_locals, Origin(source_file(frame.f_code), frame.f_code))

    def _captured(self, function: FunctionType) -> Iterator[Reached]:
        code = function.__code__
        if function.__closure__ and self._is_user[code.co_filename]:
            for name, cell in zip(code.co_freevars, function.__closure__, strict=True):
                with suppress(ValueError):  # the variable is not bound yet
                    yield Reached(cell.cell_contents, (name,), Origin(source_file(code)), depth=1)

    def _attributes(self, names: Mapping[str, Any], owner: type, reached: Reached) -> Iterator[Reached]:
        inside = reached._replace(parts=(*reached.parts, ANY_ITEM), is_element=False) if reached.is_element else reached
        origin, growing = self._origin_in(owner, reached), self._origin_in(owner, inside)
        for name, value in list(names.items()):
            if name.startswith("__"):
                continue
            if _base_of(type(value)) in _GROWING:
                yield inside.child(f".{name}", value, growing)
            else:
                yield reached.child(f".{name}", value, origin)

    def _origin_in(self, owner: type, reached: Reached) -> Origin:
        """For attributes of the user's classes it is the class, whose methods usually change them."""
        file = user_file_of(owner, self._is_user)
        if reached.is_element or file is None:
            return reached.origin
        key = (owner, len(reached.parts), reached.origin)
        found = self._owners.get(key)
        return found or self._owners.setdefault(
            key, Origin(file, owner=owner.__name__, skip=len(reached.parts), around=reached.origin)
        )

    def _is_user_class(self, kind: type) -> bool:
        return user_file_of(kind, self._is_user) is not None


def user_file_of(kind: type, is_user: Mapping[str, bool]) -> str | None:
    """The file of one of the user's classes. None for a library's, and for optimizers, whose state is their own."""
    file = module_names(kind.__module__).get("__file__")
    return file if isinstance(file, str) and is_user[file] and not issubclass(kind, Optimizer) else None


def _base_of(kind: type) -> type[Any] | None:
    """The built-in container that the type is or derives from."""
    for base in _CONTAINERS:  # a generator expression would take three times as long
        if issubclass(kind, base):
            return base
    return None


def _reverser(base: type[Any], value: Any) -> Callable[[], Iterator[Any]]:
    """Iterates from the end, if the container has an order."""
    if base is tuple:
        return lambda: iter(tuple.__getitem__(value, slice(None, -_SAMPLE - 1, -1)))
    return partial(base.__reversed__, value) if hasattr(base, "__reversed__") else lambda: iter(())


def _sequence(base: type[Any], value: Any, reached: Reached) -> Iterator[Reached]:
    if base is deque and deque.maxlen.__get__(value) is not None:
        reached = reached._replace(is_bounded=True)
    return _elements(partial(base.__iter__, value), _reverser(base, value), base.__len__(value), reached)


def _elements(
    forwards: Callable[[], Iterator[Any]], backwards: Callable[[], Iterator[Any]], length: int, reached: Reached
) -> Iterator[Reached]:
    """All elements, or a sample from both ends that represents them."""
    if length <= 2 * _SAMPLE:
        chosen = list(forwards())
    else:
        chosen = [*islice(forwards(), _SAMPLE), *islice(backwards(), _SAMPLE)]
    for value in chosen:
        yield reached.element(value, length / len(chosen))


def _items(values: dict[Any, Any], reached: Reached) -> Iterator[Reached]:
    length = dict.__len__(values)
    if length > _MAX_NAMED_KEYS or not all(type(key) is str for key in dict.keys(values)):
        held = dict.values(values)
        yield from _elements(held.__iter__, held.__reversed__, length, reached)
        return
    for key, value in list(dict.items(values)):
        yield reached.child(f"[{key!r}]", value)


def _state_of(value: object) -> dict[str, Any]:
    """Instance attributes and slots. For a module also its submodules and the buffers that may grow, but not its
    parameters."""
    names = dict(attributes_of(value))
    for kind in type(value).__mro__:
        for name, slot in names_of(kind).items():
            if type(slot) is MemberDescriptorType:
                with suppress(AttributeError):  # an empty slot
                    names[name] = slot.__get__(value)
    if issubclass(type(value), nn.Module):
        owned: dict[str, Any] = {name: held for name, held in (names.get("_buffers") or {}).items() if _may_grow(held)}
        owned |= names.get("_modules") or {}
        names = {name: held for name, held in names.items() if name not in _OWNED_BY_MODULE} | owned
    return names


def _may_grow(buffer: object) -> bool:
    """Whether a module's buffer has a graph, or is large enough to have collected data."""
    if not isinstance(buffer, Tensor):  # an unset buffer is None
        return False
    return node_of(buffer) is not None or buffer.nbytes >= _LARGE_BYTES
