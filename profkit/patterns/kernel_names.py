"""The name of a kernel as a person would say it.

Names in traces are those of C++ functions with all template arguments and parameters. What tells two kernels of
PyTorch apart is the function and its functor (``ATen/native/cuda``): ``vectorized_elementwise_kernel`` is every
pointwise kernel, ``MulFunctor`` says which. Where a lambda takes the functor's place, the function around it says it:
``GeluCUDAKernelImpl(at::TensorIteratorBase&, …)::{lambda()#1}``. CUTLASS calls all its kernels ``Kernel``, and the
first template argument says which. AMD's libraries leave C++ names as the compiler writes them (the Itanium ABI puts
its length before each word), and Tensile's names list all of its parameters behind the tile.
"""

from __future__ import annotations

import re

_MOST_READ = 4_000
"""Characters. Names of CUTLASS have some thousand; what comes later are types."""
_UNNAMED = "(anonymous namespace)::"
_FUNCTION = re.compile(r"(?:\w+::)*(~?\w+)")
_WHICH = (
    re.compile(r"(\w*(?:[Ff]unctor\w*|[a-z]Ops?))\b"),
    re.compile(r"(\w+)(?:<[\w:, ]{0,80}>)?\(at::TensorIterator"),
)
_CUTLASS = re.compile(r"(?:\w+::)*Kernel\d?<(?:\w+::)*(\w+)")
_RETURNED = re.compile(r"(?:typename )?std::enable_if<.{0,200}?>::type ")
"""A type that some functions return stands where their name is looked for."""
_ANY_KERNEL = ("kernel", "Kernel", "globalKernel", "device_kernel", "kentry")
"""Names that say nothing without the namespace: ``internal::gemvx::kernel``."""
_TENSILE = re.compile(r"Cijk_\w*?_MT\d+x\d+x\d+(?:_MI\d+x\d+x\d+)?")
_MANGLED = re.compile(r"_ZN?[KL]*(?=\d)")
_NESTED = re.compile(r"NS\w?_(?=\d)")
"""A name in a namespace that was named before: the first one in a template's arguments says which."""
_WORD_LENGTH = re.compile(r"\d{1,3}")


def short_kernel_name(name: str) -> str:
    """``void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(…)`` becomes
    ``reduce_kernel (MeanOps)``. A name that is no C++ function stays."""
    if tensile := _TENSILE.match(name):
        return tensile[0]
    if mangled := _MANGLED.match(name):
        return _demangled(name, mangled.end()) or name
    text = _RETURNED.sub("", name[:_MOST_READ].removeprefix("void ").replace(_UNNAMED, ""), count=1)
    function = _FUNCTION.match(text)
    rest = text[function.end() :] if function else ""
    if function is None or not rest.startswith(("<", "(")):
        return name
    which = next((found[-1] for kind in _WHICH if (found := kind.findall(rest))), "")
    if cutlass := _CUTLASS.match(text):
        which = cutlass[1]
    short = "::".join(function[0].split("::")[-2:]) if function[1] in _ANY_KERNEL and not which else function[1]
    return f"{short} ({which})" if which else short


def _demangled(name: str, at: int) -> str:
    """``_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdI…`` becomes ``kentry (Rmsnorm2dFwd)``."""
    words, at = _words(name, at)
    short = words[-1] if words else ""
    if short not in _ANY_KERNEL or not (nested := _NESTED.search(name, at, at + _MOST_READ)):
        return short
    inside, _ = _words(name, nested.end())
    return f"{short} ({inside[-1]})" if inside else short


def _words(name: str, at: int) -> tuple[list[str], int]:
    """The words that follow one another from ``at`` on, and where they end."""
    words: list[str] = []
    while length := _WORD_LENGTH.match(name, at):
        at = length.end() + int(length[0])
        words.append(name[length.end() : at])
    return words, at
