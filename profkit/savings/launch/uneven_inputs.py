"""Inputs of different size that make ranks wait for each other. One rule reports them, another leaves them out."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.chance import LEAST_STEPS
from profkit.derive.launch.imbalance import Imbalance, find_imbalance, kept_share, without_imbalance
from profkit.derive.launch.joint_edits import JointEdit, combine_joint
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.work_by_rank import WorkByRank, measure_work_by_rank, scale_work
from profkit.findings.values import LOW_FROM
from profkit.savings.launch.launch_savings import predict_launch_saving

_UNCERTAINTY = 0.2
"""Batches also differ in length within a rank, so no sampler makes them quite equal."""


class Uneven(Struct, frozen=True):
    """The ranks' work, how their inputs differ, and the edit that evens them out: None if it would save nothing."""

    own: WorkByRank
    imbalance: Imbalance | None
    edit: JointEdit | None

    @property
    def balanced(self) -> WorkByRank:
        """The own work, without the part that uneven inputs explain and others wait for."""
        if self.imbalance is None or self.edit is None:
            return self.own
        return without_imbalance(self.own, self.imbalance)


@derived_once
def uneven_inputs(facts: Facts) -> Uneven:
    """The uneven inputs of a launch."""
    launch = facts.launch
    assert launch is not None, "only for rules with Need.RANKS"
    own = measure_work_by_rank(launch)
    if len(own.steps) < LEAST_STEPS:
        return Uneven(own, None, None)
    imbalance = find_imbalance(launch, own)
    if not imbalance.longer_ns.any():
        return Uneven(own, imbalance, None)
    edit = _at_the_mean(launch, own, imbalance)
    is_worth_it = predict_launch_saving(facts, edit).fraction >= LOW_FROM
    return Uneven(own, imbalance, edit if is_worth_it else None)


def _at_the_mean(launch: Launch, own: WorkByRank, imbalance: Imbalance) -> JointEdit:
    """Ranks with inputs above the mean work as long as with the mean. The others would not come last."""
    kept = kept_share(own, imbalance).clip(max=1.0)
    above = np.flatnonzero((kept < 1).any(axis=1)).tolist()
    return combine_joint([scale_work(launch, own, rank, kept[rank], _UNCERTAINTY) for rank in above])
