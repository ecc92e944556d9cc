"""What becomes of one place that is asked for among many: a broken one costs itself alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from profkit.errors import ProfkitError
from profkit.failures import describe_failure

Value = TypeVar("Value")


class Done(Struct, Generic[Value], frozen=True):
    """What was made of a place, by its number in the order given, or why nothing was."""

    number: int
    value: Value | None = None
    cause: str = ""


def do_at(work: Callable[[str], Value], number: int, place: str) -> Done[Value]:
    try:
        return Done(number, work(place))
    except ProfkitError as error:
        return Done(number, cause=str(error))
    except Exception as error:  # a flaw of profkit's that one file shows must not cost the user all others
        return Done(number, cause=f"{place}: {describe_failure(error)}")
