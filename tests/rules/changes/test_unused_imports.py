"""Imports that nothing needs any more after a change."""

from __future__ import annotations

import pytest

from tests.rules.changes.test_restructured import ATTENTION, altered, changed

COLLECTS = "import gc\nimport torch\nfor x in d:\n    f(x)\n    gc.collect()  # here\n"


def test_the_import_of_what_is_no_longer_named_goes():
    after = "import torch\nfor x in d:\n    f(x)\n"
    assert changed("garbage-collection-in-step", COLLECTS) == after
    windows = COLLECTS.replace("\n", "\r\n")
    assert changed("garbage-collection-in-step", windows) == after.replace("\n", "\r\n")
    above = "# memory\n" + COLLECTS
    assert changed("garbage-collection-in-step", above) == "# memory\n" + after


@pytest.mark.parametrize(
    "other",
    [
        "gc.freeze()\n",
        "__all__ = ['gc']\n",
        "print(eval(x))\n",
        "x.gc = 1\n",
    ],
)
def test_an_import_that_somebody_may_need_stays(other):
    before = COLLECTS + other
    after = before.replace("    gc.collect()  # here\n", "")
    assert changed("garbage-collection-in-step", before) == after


def test_imports_of_other_names_stay():
    for line in ("import gc as collector", "try:\n    import gc\nexcept ImportError:\n    pass"):
        before = COLLECTS.replace("import gc", line, 1)
        assert line in changed("garbage-collection-in-step", before)
    unused = "import os\n" + COLLECTS  # by its author, before the change
    assert changed("garbage-collection-in-step", unused).startswith("import os\nimport torch\n")


def test_others_on_the_same_line_stay():
    for names, kept in (("gc, os", "os"), ("os, gc", "os"), ("gc, os, sys", "os, sys"), ("os as gc_, gc", "os as gc_")):
        before = COLLECTS.replace("import gc", f"import {names}", 1)
        assert changed("garbage-collection-in-step", before).startswith(f"import {kept}\nimport torch\n")


def test_of_a_change_that_alters_numbers_too():
    line = "weights = self.dropout(weights)\n            "
    before = ATTENTION.format("", line).replace("import math, torch", "import math\n    import torch")
    assert "import math" not in altered("unfused-attention", before)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("from gc import collect", ""),
        ("from gc import collect, freeze", "from gc import freeze\n"),
        ("from gc import freeze, collect", "from gc import freeze\n"),
        ("from gc import (\n    freeze,\n    collect,\n)", "from gc import (\n    freeze,\n)\n"),
        ("from gc import *", "from gc import *\n"),
        ("from .gc import collect", "from .gc import collect\n"),
        ("from garbage import collect", "from garbage import collect\n"),
        ("from gc import collect as collect", "from gc import collect as collect\n"),
    ],
)
def test_a_name_that_was_imported_alone_goes_too(line, kept):
    before = COLLECTS.replace("import gc", line, 1).replace("gc.collect()", "collect()")
    after = changed("garbage-collection-in-step", before)
    assert after == f"{kept}import torch\nfor x in d:\n    f(x)\n"
