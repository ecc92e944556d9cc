"""The name of a kernel as a person would say it.

Names in traces are those of C++ functions with all template arguments and parameters. What tells two kernels of
PyTorch apart is the function and its functor (``ATen/native/cuda``): ``vectorized_elementwise_kernel`` is every
pointwise kernel, ``MulFunctor`` says which. Where a lambda takes the functor's place, the function around it says it:
``GeluCUDAKernelImpl(at::TensorIteratorBase&, …)::{lambda()#1}``. CUTLASS calls all its kernels ``Kernel``, and the
first template argument says which.
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
_NOT_TOLD = ("enable_if",)
"""A type that some functions return stands where their name is looked for."""


def short_kernel_name(name: str) -> str:
    """``void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(…)`` becomes
    ``reduce_kernel (MeanOps)``. A name that is no C++ function stays."""
    text = name[:_MOST_READ].removeprefix("void ").replace(_UNNAMED, "")
    function = _FUNCTION.match(text)
    rest = text[function.end() :] if function else ""
    if function is None or not rest.startswith(("<", "(")) or function[1] in _NOT_TOLD:
        return name
    which = next((found[-1] for kind in _WHICH if (found := kind.findall(rest))), "")
    if cutlass := _CUTLASS.match(text):
        which = cutlass[1]
    return f"{function[1]} ({which})" if which else function[1]
