"""Which call of PyTorch made what another one takes: the data flow of a step, by memory.

Each call is told with the tensors that it takes, and afterwards with those that it made or wrote to. Memory has one
maker: the call that made it or wrote to it last. Views have the memory of what they show, so a call that takes a view
of a result takes the result. A maker is the number of a call; memory that was there before has a negative number of its
own.

What a backward pass writes is not seen. So memory that shows up after one, or was written to by nobody, counts as made
by that pass. Not followed, and noted as a gap: tensors without memory of their own, and results that need gradients but
come from nowhere, as from another library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, strided
from torch._C import TensorBase

from profkit.collect.tensors.identities import Memory, version_in
from profkit.run.directory import DataFlow, JoinedCopies

READING = frozenset(
    (
        "__array__",
        "__bool__",
        "__complex__",
        "__contains__",
        "__float__",
        "__index__",
        "__int__",
        "allclose",
        "equal",
        "is_nonzero",
        "item",
        "numpy",
        "tolist",
    )
)
"""Calls that give Python numbers of a tensor. What the program does next may depend on them. Printing does not feed
back."""
_JOINING = frozenset(("cat", "concat", "concatenate", "stack"))
_KEEPING_STATISTICS = ("batch_norm", "instance_norm")
"""What these write to, their running statistics, tells later calls of the step nothing while the module trains."""


class FlowWatch:
    """`begin` each call with what it takes, then `end` it with what it made. `stop` if a call was not seen: of what
    comes after it nothing is known."""

    def __init__(self) -> None:
        self._takes: list[tuple[int, ...]] = []
        self._reads: list[int] = []
        self._gaps: list[int] = []
        self._unmarked: list[int] = []
        self._makers: dict[Memory, int] = {}
        self._versions: dict[Memory, int] = {}
        self._leaves = 0
        self._backward: list[int] = []
        self._copies: list[JoinedCopies] = []
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False

    def begin(self, name: str, is_marked: bool, given: Sequence[tuple[Memory, Tensor]], is_whole: bool) -> None:
        """A call takes these tensors, each with its memory; if not ``is_whole``, others as well that have none.
        ``is_marked`` says that its number is in the trace."""
        if not self._is_on:
            return
        number = len(self._takes)
        if not is_whole:
            self._gaps.append(number)
        if not is_marked:
            self._unmarked.append(number)
        if name in READING:
            self._reads.append(number)
        if name in _JOINING and is_whole and len(given) > 1:
            self._note_copies([tensor for _, tensor in given])
        self._takes.append(tuple([self._maker_of(*one) for one in given]))

    def _note_copies(self, given: Sequence[Tensor]) -> None:
        """The next call puts these tensors side by side: are they one and the same?"""
        one = given[0]
        if any(other.layout is not strided for other in given):
            return
        shown = _what_is_shown(one)
        if all(other is one or _what_is_shown(other) == shown for other in given):
            size = TensorBase.element_size(one)
            self._copies.append(JoinedCopies(len(self._takes), tuple(one.shape), len(given), size))

    def _maker_of(self, memory: Memory, tensor: Tensor) -> int:
        known, version = self._makers.get(memory), version_in(memory, tensor)
        if known is None:
            self._leaves += 1
            known = self._backward[-1] if self._backward else -self._leaves
            if tensor.grad_fn is not None:
                self._gaps.append(len(self._takes))
        elif version != self._versions[memory] and self._backward:
            known = self._backward[-1]
        self._makers[memory], self._versions[memory] = known, version
        return known

    def end(self, name: str, taken: Iterable[Memory], made: Iterable[tuple[Memory, Tensor, bool]]) -> None:
        """The call that `begin` was told of last made these tensors, each with its memory, or (True) wrote to them.
        Views of what it takes are no new results."""
        if not self._is_on or not self._takes:
            return
        number, old = len(self._takes) - 1, set(taken)
        if name == "backward":
            self._backward.append(number)
        keeps_statistics = any(part in name for part in _KEEPING_STATISTICS)
        for memory, tensor, is_written in made:
            if memory not in old or (is_written and not keeps_statistics):
                self._makers[memory] = number
            self._versions[memory] = version_in(memory, tensor)

    @property
    def found(self) -> DataFlow | None:
        """None if nothing was seen."""
        if not self._takes:
            return None
        return DataFlow(
            takes=tuple(self._takes),
            unmarked=tuple(self._unmarked),
            reads=tuple(self._reads),
            backward=tuple(self._backward),
            gaps=tuple(self._gaps),
            copies=tuple(self._copies),
        )


def _what_is_shown(tensor: Tensor) -> tuple[object, ...]:
    """Equal for tensors that show the same numbers of one memory."""
    shape, stride = tuple(tensor.shape), TensorBase.stride(tensor)
    return TensorBase.data_ptr(tensor), shape, stride, tensor.dtype, TensorBase.is_neg(tensor)
