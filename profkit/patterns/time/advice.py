"""What to do about a line that takes much time outside of PyTorch, by what its text says that it does.

The text alone proves nothing: the samples of the program's stacks say that the line takes the time, and what it calls
there. Advice that does not fit what is called is not given.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from profkit.derive.facts import Facts
from profkit.source import remark_kinds as kinds


class Advice(Struct, frozen=True):
    """What the line ``does``, as a sentence about it, and the ``fix``. ``callees`` are parts of the names of the
    functions that it calls then; a comparison or an addition has none."""

    does: str
    fix: str
    callees: tuple[str, ...]


_ADVICE: Mapping[str, Advice] = {
    kinds.DRAW_FROM_ALL: Advice(
        "The line draws without replacement, for which `numpy.random.choice` shuffles all there is.",
        "Make `rng = numpy.random.default_rng()` once and call `rng.choice(n, few, replace=False)`, which does not "
        "shuffle all. Where a row may come twice, `rng.integers(n, size=few)` is cheaper still.",
        ("choice",),
    ),
    kinds.WEIGHTED_DRAW: Advice(
        "The line draws by weights, and sums up the weights of all elements for each draw.",
        "While the weights stay, draw for many steps in one call, or sum them up once: `random.choices` takes "
        "`cum_weights`, and `numpy.searchsorted` finds places in sums. If each step changes a few weights, keep their "
        "sums in a tree, as prioritised replay does. A draw or a change then reads 20 numbers of a million.",
        ("choice",),
    ),
    kinds.DEEP_COPY: Advice(
        "The line copies an object with all that this refers to, one by one.",
        "Copy only what changes. For weights, use `{name: value.detach().clone() for name, value in "
        "model.state_dict().items()}`; for a flat list or dictionary, `list(x)` or `dict(x)`. What is only read needs "
        "no copy.",
        ("copy",),
    ),
    kinds.WHOLE_COPY: Advice(
        "The line copies an array, all that it names, each time it runs.",
        "Copy only what is written to afterwards: a slice that is only read is a view and needs no copy. Where rows "
        "are picked by number, pick them first: `x[rows]` is a copy of these rows alone.",
        ("copy",),
    ),
    kinds.ARRAY_GROWN: Advice(
        "The line joins an array or a frame to itself and so copies all of it, more in every round.",
        "Collect the pieces in a list, and join them once behind the loop. If the length is known, make the whole "
        "array before the loop and fill it row by row.",
        ("append", "concat", "stack", "insert"),
    ),
    kinds.LIST_GROWN: Advice(
        "The line makes a new list of the old one and so copies all of it, more in every round.",
        "Use `append` or `extend`, which add to the list at hand.",
        ("add",),
    ),
    kinds.LIST_SHIFT: Advice(
        "The line takes or puts the first element of a list, which moves all others.",
        "Use `collections.deque` with `popleft` and `appendleft`. Or keep the place of the first element in a number, "
        "and leave the list as it is.",
        ("pop", "insert"),
    ),
    kinds.INSIDE_DEQUE: Advice(
        "The line reads elements inside a deque, which is walked from its nearer end each time.",
        "Keep the elements in a list of fixed length, and overwrite the oldest: `buffer[count % size] = item`. Reading "
        "any element of a list takes the same short time.",
        ("sample", "choice", "getitem"),
    ),
    kinds.LIST_SEARCH: Advice(
        "The line searches a list from its start.",
        "Keep the same values in a `set`, or their places in a dictionary that is made once: `{value: place for place, "
        "value in enumerate(values)}`. These find a value at once, however many there are.",
        ("index", "remove", "count", "__eq__"),
    ),
    kinds.ROW_OF_FRAME: Advice(
        "The line makes a pandas object of one row or cell.",
        'Take the columns out once, as arrays: `x = frame["x"].to_numpy()`, or `torch.from_numpy` of several. Then '
        "index those by row, or all rows of a batch at once.",
        ("loc", "iat", "getitem", "iterrows", "apply", "xs"),
    ),
    kinds.FILE_READ: Advice(
        "The line opens, reads or decodes a file or a text anew.",
        'What is read again should be read once and kept; arrays can be mapped with `numpy.load(path, mmap_mode="r")`. '
        "What is read once per sample belongs into a DataLoader's workers, in a form that needs little decoding.",
        ("load", "open", "read", "decod", "file", "json", "csv", "pickle"),
    ),
}
"""By the kind of remark, the most certain first."""
_TEXT_OF_TENSOR = Advice(
    "The line makes text of a tensor.",
    "Make text at every n-th step only, of numbers that one `tolist()` has fetched. Of a tensor that is printed, each "
    "element first becomes a tensor of its own.",
    ("Tensor.__format__", "Tensor.__repr__", "Tensor.__str__", "_tensor_str"),
)
"""The text of a line does not say whether what it prints is a tensor. What it calls does, by the whole name."""


def advice_on(facts: Facts, file: str, line: int, callee: str = "") -> Advice | None:
    """What the line does and what to do about it, if it calls ``callee``, empty if several things or none with a name.
    None if its text says nothing that fits."""
    if any(part in callee for part in _TEXT_OF_TENSOR.callees):
        return _TEXT_OF_TENSOR
    remarks = {
        remark.kind
        for remark in facts.run.remarks
        if remark.site.file == file and remark.site.line <= line <= max(remark.until, remark.site.line)
    }
    called = callee.rpartition(".")[2].lower()
    for kind, advice in _ADVICE.items():
        if kind in remarks and (not called or any(part in called for part in advice.callees)):
            return advice
    return None
