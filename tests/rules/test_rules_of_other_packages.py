"""A rule that an installed package brings: it looks like profkit's own, and a broken one costs nothing but itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from profkit.rules import _may_offer

RULE = '''"""A step calls the operator of this house.

What it detects
Calls of house::slow.

Why is this bad?
It is slow.

Example
    house.slow(x)

Use instead
    house.fast(x)

How the saving is estimated
The step is replayed without them.
"""

from profkit.findings.values import Kind
from profkit.rules.base import Need, Suspicion, rule
from profkit.savings.edits import remove


@rule(Kind.FAULT, Need.OPERATORS)
def slow_operator(facts):
    rows = facts.measured_rows(facts.trace.named("house::slow"))
    if rows.size:
        yield Suspicion("house::slow is called.", "Call house::fast.", rows, edit=remove(rows))
'''
ENTRIES = """[profkit.rules]
slow-operator = house_rules.slow_operator:slow_operator
broken = house_rules.broken:broken
number = house_rules.slow_operator:__name__
"""


def install(folder: Path) -> None:
    """As pip would leave it."""
    (folder / "house_rules").mkdir()
    (folder / "house_rules" / "__init__.py").touch()
    (folder / "house_rules" / "slow_operator.py").write_text(RULE)
    (folder / "house_rules" / "broken.py").write_text("import nothing_of_the_kind")
    info = folder / "house_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)


def test_a_rule_of_another_package_is_listed_explained_and_looks(tmp_path: Path) -> None:
    install(tmp_path)
    code = f"import sys; sys.path.append({str(tmp_path)!r}); sys.path.append({str(Path.cwd())!r})\n"
    code += "from profkit.rules import find_rule, all_rules\n"
    code += "from tests.traces import facts_of, op, step\n"
    code += "facts = facts_of([step(1, 0, 1000), op('house::slow', 0, 600)])\n"
    code += "rule = find_rule('slow-operator')\n"
    code += "print(rule.summary, *[one.message for one in rule.check(facts)], 'number' in all_rules())"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "A step calls the operator of this house. house::slow is called. False\n"
    lines = ended.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("profkit: the rule broken (house_rules.broken:broken) is left out: ModuleNotFoundError")
    assert lines[1].endswith("is left out: is no rule made with profkit.rules.base.rule")


def test_a_package_in_an_archive_is_asked_and_a_folder_without_rules_is_not(tmp_path: Path) -> None:
    (tmp_path / "plain-1.0.dist-info").mkdir()
    (tmp_path / "plain-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\nplain = plain:main\n")
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").mkdir(parents=True)
    (tmp_path / "archive.zip").touch()
    assert [_may_offer(str(tmp_path / name)) for name in ("", "archive.zip", "missing")] == [False, True, False]
    (tmp_path / "plain-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    assert _may_offer(str(tmp_path))
