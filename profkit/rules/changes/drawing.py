"""Whether a loader's samples, or their order, are drawn at random: by whom decides which numbers they are."""

from __future__ import annotations

import libcst
from libcst import matchers

from profkit.rules.changes.base import Argument, ProgramText, called_name, text_of
from profkit.rules.changes.refusing import Refused
from profkit.rules.changes.scopes import assignment_of, names_in

_DRAWING = frozenset(
    (
        "bernoulli",
        "bernoulli_",
        "choice",
        "choices",
        "dropout",
        "gauss",
        "integers",
        "multinomial",
        "normal",
        "normal_",
        "normalvariate",
        "permutation",
        "rand",
        "rand_like",
        "randint",
        "randn",
        "randn_like",
        "random",
        "random_",
        "randperm",
        "randrange",
        "sample",
        "shuffle",
        "standard_normal",
        "uniform",
        "uniform_",
    )
)
"""Functions and methods that draw random numbers."""
_AUGMENTING = ("Random", "ColorJitter", "AutoAugment", "RandAugment", "TrivialAugment", "AugMix")
"""How the names of torchvision's random transforms begin."""
_NOT_AUGMENTING = ("Random", "RandomState", "RandomSampler", "RandomForestClassifier", "RandomForestRegressor")
_SEEDED = frozenset(("default_rng", "Random", "RandomState", "manual_seed"))
"""What makes a source of random numbers, the same ones wherever it is made."""
_READING = frozenset(("__getitem__", "__getitems__", "__iter__", "__next__", "__call__", "forward"))
"""Methods by which a loader gets its samples: of data sets and of what they pass samples through."""


def draws_samples(text: ProgramText) -> bool:
    """Whether code of the file that a loader's worker may run draws random numbers."""
    made = {called_name(call) for call in text.nodes(libcst.Call)} - {*_NOT_AUGMENTING}
    if any(name.startswith(_AUGMENTING) for name in made):
        return True
    return any(_draws(text, call) for function in _read_by(text) for call in _calls(function.body))


def draws_order(call: libcst.Call) -> bool:
    """Whether a ``DataLoader`` draws the order of the samples anew in each epoch."""
    shuffled = Argument("shuffle", 2).find(call)
    drawn = [Argument(name).find(call) for name in ("sampler", "batch_sampler")]
    return (shuffled is not None and text_of(shuffled.value) != "False") or any(one is not None for one in drawn)


def _draws(text: ProgramText, call: libcst.Call) -> bool:
    if called_name(call) not in _DRAWING:
        return False
    source = call.func.value if isinstance(call.func, libcst.Attribute) else None
    if not isinstance(source, libcst.Name):
        return True
    try:
        made = assignment_of(text, source.value, call).value
    except Refused:
        return True
    return not (isinstance(made, libcst.Call) and called_name(made) in _SEEDED and made.args)


def _read_by(text: ProgramText) -> list[libcst.FunctionDef]:
    """The functions of the file that a worker may call: what reads samples, what joins them, and what those name."""
    given = [Argument(name, place).find(call) for call in text.calls("DataLoader") for name, place in _GIVEN]
    names = {name for one in given if one is not None for name in names_in(one.value)} | _READING
    known: list[libcst.CSTNode] = []
    while new := [one for one in _naming(text, names) if one not in known]:
        known += new
        names |= {name for one in new for name in names_in(one.body if isinstance(one, libcst.FunctionDef) else one)}
    return [one for one in known if isinstance(one, libcst.FunctionDef)]


def _naming(text: ProgramText, names: set[str]) -> list[libcst.CSTNode]:
    """The functions with these names, and the values that variables with these names are set to."""
    functions = [one for one in text.nodes(libcst.FunctionDef) if one.name.value in names]
    plain = [one for one in text.nodes(libcst.Assign) if isinstance(one.targets[0].target, libcst.Name)]
    return [*functions, *(one.value for one in plain if text_of(one.targets[0].target) in names)]


_GIVEN = (("dataset", 0), ("collate_fn", 6), ("worker_init_fn", 10))
"""Arguments of a loader that bring code with them."""


def _calls(node: libcst.CSTNode) -> list[libcst.Call]:
    return [one for one in matchers.findall(node, matchers.Call()) if isinstance(one, libcst.Call)]
