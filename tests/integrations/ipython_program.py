"""An IPython session: ``ipython_program NAMES`` runs the cells below, and ``outcome.json`` describes the results.

``NAMES`` is ``terminal`` or ``kernel``: cells get file names as in IPython or as in the kernel of notebooks.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

FUNCTION = """\
import torch
values = torch.rand(2000)

def add_up():
    total = torch.zeros(())
    for i in range(len(values)):
        total = total + values[i]
    return total
"""
RECORDED = """\
%%profkit --wait 1 --active 2 --output run

layer = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(12):
    penalty = torch.zeros(())
    for value in values[:500]:
        penalty = penalty + value
    (layer(torch.rand(4)).square().sum() + add_up() + penalty).backward()
    optimizer.step()
kept = 5
kept + 1
"""
FAILING = """\
%%profkit --output failed
torch.rand(8) * 2
raise KeyError("mine")
"""


def main() -> None:
    os.environ["IPYTHONDIR"] = os.getcwd()
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell

    class KernelCompiler(CachingCompiler):  # type: ignore[misc]  # its types are not followed
        """Names cells as ipykernel does: as files that do not exist."""

        def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
            return f"/tmp/ipykernel_{os.getpid()}/{abs(hash(raw_code))}.py"

    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    if sys.argv[1] == "kernel":
        shell.compile = KernelCompiler()
    outcome: dict[str, Any] = {}

    def run(name: str, cell: str) -> Any:
        result = shell.run_cell(cell, store_history=True)
        outcome[name] = type(result.error_in_exec).__name__ if result.error_in_exec else None
        return result.result

    run("load", "%load_ext profkit")
    run("function", FUNCTION)
    diagnosis = run("recorded", RECORDED)
    outcome["findings"] = [
        (found.rule, found.location.file, found.location.line, found.location.source)
        for found in diagnosis.findings
        if found.location is not None
    ]
    outcome["kept"] = shell.user_ns.get("kept")
    formatted = shell.display_formatter.format(diagnosis)[0]
    outcome["html"], outcome["plain"] = formatted["text/html"], formatted["text/plain"]
    run("failed", FAILING)
    run("wrong", "%%profkit --active none\n1")
    run("wrong_number", "%%profkit --active 0\n1")
    run("unload", "%unload_ext profkit")
    outcome["left"] = "profkit" in shell.magics_manager.magics["cell"]
    Path("outcome.json").write_text(json.dumps(outcome))
