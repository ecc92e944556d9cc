"""How profkit's code runs inside the program unnoticed: out of the compiler's sight, and without an error that reaches
the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, TypeVar

from profkit.core.errors import ProfkitError
from profkit.source.user_code import UserFiles

_MAX_MESSAGE = 200
"""It is shown in one line among others. Some libraries put whole tensors into their messages."""
_Function = TypeVar("_Function", bound=Callable[..., Any])
Switch = Callable[[], AbstractContextManager[Any]]


def uncompiled(function: _Function) -> _Function:
    """Make torch.compile skip ``function`` and everything that it calls, when the program's compiled code calls it.

    ``torch.compiler.disable`` does the same but spends seconds importing the compiler. If this PyTorch lacks the
    switches, the compiler traces what it can of ``function`` and runs the rest.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]  # read when the compiler traces a call of it
    with suppress(AttributeError):
        compiler = sys.modules["torch"]._C._dynamo.eval_frame
        skip = compiler._FrameExecStrategy(compiler._FrameAction.SKIP, compiler._FrameAction.SKIP)
        compiler.set_code_exec_strategy(function.__code__, skip)  # read when the function is called
    return function


def noticed(
    name: str, on_read: Callable[[Any], object] | None = None, on_write: Callable[[Any, Any], object] | None = None
) -> property:
    """A property for a class that stands in for the attribute ``name`` of its instances; the value stays in their
    ``__dict__``. It notices when a library reads or sets the attribute, so that profkit is not on the stack while the
    library runs.

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


def switches_past_modes() -> tuple[Switch, Switch]:
    """Contexts for profkit's own calls of PyTorch: past the program's function modes and tensor subclasses, and past
    its dispatch modes. Both are private; a PyTorch without them lets modes see the calls."""
    switches = sys.modules["torch"]._C
    return getattr(switches, "DisableTorchFunction", nullcontext), getattr(
        switches, "_DisableTorchDispatch", nullcontext
    )


class Guard:
    """Calls profkit's code inside a program that must not notice: exceptions go to ``on_error`` instead, and calls of
    PyTorch past the program's modes.

    In a forked child, which inherits the recording, it calls nothing. Interrupts and exits go to ``on_error`` and then
    on to the program.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._process = os.getpid()
        self._past_functions, self._past_dispatch = switches_past_modes()

    def __call__(self, action: Callable[[], None]) -> None:
        if os.getpid() != self._process:
            return
        try:
            with self._past_functions(), self._past_dispatch():
                action()
        except Exception as error:
            self._on_error(error)
        except BaseException as error:
            self._on_error(error)
            raise


def say(line: str) -> None:
    """Print one line on stderr."""
    with suppress(Exception):  # the program may have closed or replaced it
        sys.stderr.write(f"profkit: {line}\n")


def describe(error: BaseException) -> str:
    """The error in one line, with its type unless it is profkit's own."""
    text = "an error that cannot be shown"
    with suppress(Exception):  # the program's exceptions may fail to describe themselves
        text = " ".join(str(error).split())[:_MAX_MESSAGE]
    return text if isinstance(error, ProfkitError) else f"{type(error).__name__}: {text}".removesuffix(": ")


def describe_end(error: BaseException) -> str:
    """What ended the program and its innermost line in user code: ``ValueError: no more (at train.py:12)``."""
    place = ""
    with suppress(Exception):
        files, trace = UserFiles(), error.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_code.co_filename
            if files[name] and os.path.isfile(name):  # the files of notebook cells do not exist
                place = f" (at {os.path.basename(name)}:{trace.tb_lineno})"
            trace = trace.tb_next
    return f"{describe(error)}{place}"
