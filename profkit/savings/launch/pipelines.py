"""For the rules about pipelines: which pipelines there are."""

from __future__ import annotations

from profkit.derive.facts import Facts
from profkit.derive.launch.pipelines import Pipeline, is_in_doubt
from profkit.savings.launch.uneven_inputs import uneven_inputs


def pipelines_in_training(facts: Facts) -> list[Pipeline]:
    """The launch's pipelines whose gradients come back."""
    return [one for one in uneven_inputs(facts).own.staging.pipelines if one.returns]


def may_hide_pipelines(facts: Facts) -> bool:
    """Whether no pipeline is seen, but some messages go nobody knows where."""
    launch = facts.launch
    return launch is not None and any(is_in_doubt(launch)) and not pipelines_in_training(facts)
