"""Acting when a call of the program's is over, without being on the stack during the call."""

from __future__ import annotations

import _thread
from collections.abc import Callable

from profkit.collect.program.guard import uncompiled


class WhenDropped:
    """Calls ``action`` when Python drops it, as it drops the arguments of a call that is over."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    @uncompiled
    def __del__(self) -> None:
        try:
            self._action()
        except KeyboardInterrupt:  # Python ignores a finalizer's exceptions: interrupt again, outside
            _thread.interrupt_main()
