"""What a fork of the program means for the recording that is on: the parent goes on with it, the child has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol


class Forked(Protocol):
    """Who is told of forks; errors are its own affair."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def disown(self) -> None:
        """In the child."""


def follow_forks(current: Callable[[], Forked | None]) -> None:
    """Tell whoever is ``current`` of each fork from here on, where the system has such a thing."""

    def telling(what: Callable[[Forked], None]) -> Callable[[], None]:
        def tell() -> None:
            if (told := current()) is not None:
                what(told)

        return tell

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=telling(lambda told: told.before_fork()),
            after_in_parent=telling(lambda told: told.after_fork()),
            after_in_child=telling(lambda told: told.disown()),
        )
