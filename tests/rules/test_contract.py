"""What holds of all rules: each file is one, found by what it holds."""

from __future__ import annotations

import pkgutil

from profkit import rules
from profkit.rules import all_rules


def test_each_file_beside_the_contract_is_a_rule_of_that_name():
    files = {module.name.replace("_", "-") for module in pkgutil.iter_modules(rules.__path__)}
    assert files - set(all_rules()) == {"base"}
