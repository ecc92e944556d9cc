"""Acting once the program has imported a module, however it does that.

A finder in front of the others wraps the module's loader. Many programs first only ask whether a module is there
(``importlib.util.find_spec``), import it lazily, or in vain, so the finder stays until the module was executed. A
program may also load it past the finders, with a loader of its own: the next look-up of any module then shows it in
``sys.modules``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

LATE_NAME = "_import_device_backends"
"""What PyTorch's package defines near its end."""


def watch_for_torch(action: Callable[[], None]) -> None:
    """Call ``action`` once PyTorch was imported, or at once if it was before."""
    ImportWatch("torch", LATE_NAME, action).install()


class ImportWatch:
    """Calls ``action`` once, right after the module ``name`` was executed, in the process that made this object.

    ``late_name`` is one that the module defines near its end: a module that lacks it is a stub, or still half executed.
    """

    def __init__(self, name: str, late_name: str, action: Callable[[], None]) -> None:
        self._name, self._late_name, self._action = name, late_name, action
        self._process = os.getpid()
        self._has_acted = False

    def install(self) -> None:
        """Watch from now on; act at once if the module was executed before."""
        if not self._act_if_executed():
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Part of the finders' protocol."""
        if name != self._name:
            self._act_if_executed()
            return None
        for finder in _after(self):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                self._wrap(spec.loader)
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Part of the finders' protocol: nothing is kept here."""

    def _wrap(self, loader: Any) -> None:
        if not self._has_acted and hasattr(loader, "exec_module") and not isinstance(loader.exec_module, _Execution):
            with suppress(AttributeError, TypeError):  # a loader that takes no attributes: the next look-up will tell
                loader.exec_module = _Execution(loader, loader.exec_module, self._name, self._act)

    def _act_if_executed(self) -> bool:
        module = sys.modules.get(self._name)
        if type(module) is not ModuleType:  # absent, blocked, or lazy: any look at it would import it
            return False
        if self._late_name not in vars(module) or getattr(module.__spec__, "_initializing", False):
            return False
        self._act()
        return True

    def _act(self) -> None:
        if self._has_acted:
            return
        self._has_acted = True
        with suppress(ValueError):  # the program has replaced the list
            sys.meta_path.remove(self)
        if os.getpid() == self._process:
            self._action()


class _Execution:
    """Stands in for a loader's ``exec_module`` until that has executed the module.

    All are equal, as loaders of one file are equal for Python and compare their attributes.
    """

    def __init__(
        self, loader: Any, execute: Callable[[ModuleType], None], name: str, action: Callable[[], None]
    ) -> None:
        self._loader, self._execute, self._name, self._action = loader, execute, name, action

    def __call__(self, module: ModuleType) -> None:
        if module.__name__ != self._name:  # some loaders load everything (PyInstaller's)
            self._execute(module)
            return
        own = vars(self._loader).pop("exec_module", None)  # from here on the loader is as it was
        try:
            self._execute(module)
        except BaseException:
            if own is not None:  # the program may ask this very loader again
                self._loader.exec_module = own
            raise
        self._action()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Execution)

    def __hash__(self) -> int:
        return hash(_Execution)


def _after(watch: ImportWatch) -> list[Any]:
    """The finders that Python asks after this one; all if this one is not among them."""
    finders = list(sys.meta_path)
    place = next((place for place, finder in enumerate(finders) if finder is watch), -1)
    return finders[place + 1 :]
