"""The lines that seed random numbers, and those that draw them, by whose they are: PyTorch's, NumPy's or Python's.

Only what its own name tells counts: ``np.random.rand`` draws from NumPy's global numbers, ``rng.random()`` from a
generator that may have a seed of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from profkit.source.index import SourceFile
from profkit.source.syntax import name_called

TORCH, NUMPY, PYTHON = "PyTorch", "NumPy", "Python's random"
_SEEDS_ALL = frozenset(("seed_everything", "set_seed", "set_random_seed", "set_global_seed"))
"""Lightning's, Transformers' and Accelerate's functions of these names seed all three; a program's own of such a name
calls the others in its text."""
_DRAWS: Mapping[str, frozenset[str]] = {
    TORCH: frozenset(("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "multinomial", "bernoulli")),
    NUMPY: frozenset(
        (
            *("rand", "randn", "randint", "random", "random_sample", "choice", "permutation", "shuffle", "normal"),
            *("uniform", "standard_normal", "binomial", "poisson", "beta", "exponential"),
        )
    ),
    PYTHON: frozenset(
        ("random", "randint", "randrange", "choice", "choices", "sample", "shuffle", "uniform", "gauss", "betavariate")
    ),
}
_MODULES: Mapping[str, str] = {"torch": TORCH, "np.random": NUMPY, "numpy.random": NUMPY, "random": PYTHON}


def seeded(file: SourceFile) -> dict[str, list[int]]:
    """The lines that seed, by whose random numbers they seed."""
    found: dict[str, list[int]] = {}
    for call in _calls(file):
        name = name_called(call)
        if name in _SEEDS_ALL:
            whose = [TORCH, NUMPY, PYTHON]
        elif name in ("manual_seed", "manual_seed_all") and _module(call).startswith("torch"):
            whose = [TORCH]
        elif name == "seed" and call.args and _module(call) in _MODULES:
            whose = [_MODULES[_module(call)]]
        else:
            continue
        for one in whose:
            found.setdefault(one, []).append(call.lineno)
    return found


def drawn(file: SourceFile) -> dict[str, list[int]]:
    """The lines that draw from the global random numbers, by whose they are. A call with a generator draws from
    that."""
    found: dict[str, list[int]] = {}
    for call in _calls(file):
        whose = _MODULES.get(_module(call))
        has_own = any(word.arg == "generator" for word in call.keywords)
        if whose is not None and name_called(call) in _DRAWS[whose] and not has_own:
            found.setdefault(whose, []).append(call.lineno)
    return found


def _calls(file: SourceFile) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(file.tree) if isinstance(node, ast.Call))


def _module(call: ast.Call) -> str:
    """``np.random`` of ``np.random.rand(3)``; empty if the function is called without a module, or of a value."""
    parts: list[str] = []
    node = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
