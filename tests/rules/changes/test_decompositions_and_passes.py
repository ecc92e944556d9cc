"""Decompositions that give less, and gradients that are asked for together: the text after it, or the reason."""

from __future__ import annotations

import pytest

from profkit.rules.changes import Refused
from tests.rules.changes.test_changes import changed

VALUES = "Ask for the values alone: `torch.linalg.svdvals`."
THIN = "Pass `full_matrices=False`: the factors then have 32 columns, which hold the whole matrix."
SOME = "Leave `some=True`, the default,: the factors then have 32 columns, which hold the whole matrix."
IMPORT = "import torch\n"


def decomposed(text: str, fix: str) -> str:
    return changed("unread-factors", IMPORT + text, 2, fix).removeprefix(IMPORT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("_, s, _ = torch.linalg.svd(x)  # why\n", "s = torch.linalg.svdvals(x)  # why\n"),
        ("u, s, v = torch.svd(x)\nf(s)\n", "s = torch.linalg.svdvals(x)\nf(s)\n"),
        ("f(torch.linalg.svd(x, full_matrices=False).S)\n", "f(torch.linalg.svdvals(x))\n"),
        ("f(torch.svd(input=x)[1].max())\n", "f(torch.linalg.svdvals(x).max())\n"),
        ("w, _ = torch.linalg.eigh(x, UPLO='U')\n", "w = torch.linalg.eigvalsh(x, UPLO='U')\n"),
        ("w = torch.linalg.eig(x).eigenvalues\n", "w = torch.linalg.eigvals(x)\n"),
    ],
)
def test_values_alone(before, after):
    assert decomposed(before, VALUES) == after


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("u, s, _ = torch.linalg.svd(x)\nf(u)\n", "`u` is named elsewhere"),
        ("_, s, _ = torch.linalg.svd(x)\nf(_)\n", "`_` is named elsewhere"),
        ("out = torch.linalg.svd(x)\n", "the line does not show which result is read"),
        ("s, _ = torch.linalg.svd(x)\n", "the line does not show which result is read"),
        ("_, self.s, _ = torch.linalg.svd(x)\n", "`self.s` is no variable"),
        ("_, s, _ = svd(x)\n", "`svd` is imported by its own name: import `svdvals` and call that"),
        ("_, s, _ = np.svd(x)\n", "`np.svd` may be another function than PyTorch's"),
        ("f(torch.linalg.svd(*x).S)\n", "the call takes arguments that the line does not show"),
    ],
)
def test_values_alone_are_refused_where_more_may_be_read(before, why):
    with pytest.raises(Refused, match="^" + why.replace("(", "[(]") + "$"):
        decomposed(before, VALUES)


@pytest.mark.parametrize(
    ("before", "after", "fix"),
    [
        ("_, _, v = torch.linalg.svd(x)\n", "_, _, v = torch.linalg.svd(x, full_matrices=False)\n", THIN),
        ("v = svd(x, full_matrices=True).Vh\n", "v = svd(x, full_matrices=False).Vh\n", THIN),
        ("_, _, v = torch.svd(x, some=False)\n", "_, _, v = torch.svd(x)\n", SOME),
    ],
)
def test_factors_without_their_completion(before, after, fix):
    assert decomposed(before, fix) == after


def test_an_option_that_is_a_variable_may_have_a_reason():
    with pytest.raises(Refused, match="which may have a reason"):
        decomposed("_, _, v = torch.linalg.svd(x, full)\n", THIN)


def joined(text: str) -> str:
    return changed("repeated-backward-pass", text, 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "u_x = grad(u.sum(), x, create_graph=True)[0]\nu_t = grad(u.sum(), t, create_graph=True)[0]\n",
            "u_x, u_t = grad(u.sum(), (x, t), create_graph=True)\n",
        ),
        (
            "a = T.grad(u, x, w, retain_graph=True)[0]\n# by t\nb = T.grad(u, t, w)[0]  # why\nf()\n",
            "# by t\n# why\na, b = T.grad(u, (x, t), w)\nf()\n",
        ),
        (
            "a = grad(inputs=x[0], outputs=u)[0]\nb = grad(inputs=z.t, outputs=u)[0]\nc = grad(inputs=x, outputs=a)\n",
            "a, b = grad(inputs=(x[0], z.t), outputs=u)\nc = grad(inputs=x, outputs=a)\n",
        ),
    ],
)
def test_gradients_by_several_inputs_are_asked_for_together(before, after):
    line = 3 if "# by t" in before else 2
    assert changed("repeated-backward-pass", before, line) == after


def test_it_fits_into_a_function():
    body = "    a = grad(u, x)[0]\n    b = grad(u, t)[0]\n    return a + b\n"
    found = changed("repeated-backward-pass", f"def f(u, x, t):\n{body}", 3)
    assert found == "def f(u, x, t):\n    a, b = grad(u, (x, t))\n    return a + b\n"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("a = grad(u, x)[0]\nb = grad(u, a)[0]\n", "a call takes what one above it gives"),
        ("a = grad(u, x)[0]\na = grad(u, t)[0]\n", "a call takes what one above it gives"),
        ("f()\nb = grad(u, t)[0]\n", "the other calls do not stand right above or below it"),
        ("a = grad(v, x)[0]\nb = grad(u, t)[0]\n", "the other calls do not stand right above or below it"),
        ("a = grad(u, x, w)[0]\nb = grad(u, t, v)[0]\n", "the other calls do not stand right above or below it"),
        ("a = grad(u, (x, y))[0]\nb = grad(u, t)[0]\n", "the other calls do not stand right above or below it"),
        ("def f(u, x):\n    return grad(u, x)[0]\n", "the line is not `name = grad"),
    ],
)
def test_other_calls_are_left_alone(before, why):
    with pytest.raises(Refused, match=why):
        joined(before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.linalg import svd\n", "from torch.linalg import svdvals\n"),
        ("from torch.linalg import (svd, eigh)\n", "from torch.linalg import (svdvals, eigh)\n"),
        ("from torch.linalg import svd\ng = svd\n", "from torch.linalg import svd, svdvals\ng = svd\n"),
        ("from torch.linalg import svd, svdvals\n", "from torch.linalg import svdvals\n"),
    ],
)
def test_a_function_that_is_imported_by_its_own_name_is_imported_as_the_other(before, after):
    text = f"{before}_, s, _ = svd(x, full_matrices=True)\n"
    assert changed("unread-factors", text, text.count("\n"), VALUES) == f"{after}s = svdvals(x)\n"


@pytest.mark.parametrize(
    "line", ["from scipy.linalg import svd", "from torch.linalg import svd, inv as i", "import svd"]
)
def test_another_import_is_left_alone(line):
    with pytest.raises(Refused, match=r"^`svd` is imported by its own name: import `svdvals` and call that$"):
        changed("unread-factors", f"{line}\n_, s, _ = svd(x)\n", 2, VALUES)
