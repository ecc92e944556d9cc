"""The saving of an edit of a launch: how much sooner its steps would be over for all of its ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs

from profkit.derive.facts import Facts, derived_once
from profkit.derive.launch.joint_edits import JointEdit, combine_joint
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.replay import JointReplay, replay_launch
from profkit.findings.values import Saving
from profkit.savings.edits import Edit, combine
from profkit.savings.launch.rank_edits import edit_of_launch
from profkit.savings.simulate import predict_saving
from profkit.trace.statistics import relative_deviation


def predict_launch_saving(facts: Facts, edit: JointEdit) -> Saving:
    """What the job gains per step, with a range from the edit's uncertainty and the spread of the steps."""
    unedited, edited = replay_of_launch(facts), replay_of_launch(facts, edit)
    fraction = max(0, unedited.replayed_ns - edited.replayed_ns) / max(unedited.replayed_ns, 1)
    margin = edit.uncertainty + _spread_of_steps(launch_of(facts))
    return Saving(
        time_ns_per_step=int(fraction * unedited.recorded_ns / unedited.steps),
        fraction=round(fraction, 6),
        low=round(fraction * max(0.0, 1 - margin), 6),
        high=round(min(1.0, fraction * (1 + margin)), 6),
        of_part=facts.is_part,
    )


def predict_together(facts: Facts, edits: Sequence[Edit | JointEdit]) -> Saving:
    """What all these edits give back at once: for this program or, in a launch, for the job. Then the rank's own edits
    apply to all ranks, which run the same program."""
    own = [edit for edit in edits if isinstance(edit, Edit)]
    joint = [edit for edit in edits if isinstance(edit, JointEdit)]
    spread = edit_of_launch(facts, combine(own)) if own else None
    if spread is None and not joint:
        return predict_saving(facts, combine(own))
    parts = joint if spread is None else [*joint, spread]
    return predict_launch_saving(facts, structs.replace(combine_joint(parts), uncertainty=_uncertainty(facts, parts)))


def _uncertainty(facts: Facts, parts: Sequence[JointEdit]) -> float:
    """Each edit's uncertainty, weighted by what it gives back alone, so that a small uncertain gain does not spoil a
    large certain one."""
    gains = [predict_launch_saving(facts, part).fraction for part in parts]
    if not any(gains):
        return max(part.uncertainty for part in parts)
    return sum(gain * part.uncertainty for gain, part in zip(gains, parts, strict=True)) / sum(gains)


def launch_of(facts: Facts) -> Launch:
    assert facts.launch is not None, "only rules with Need.RANKS hand over such an edit"
    return facts.launch


class _Replaying(Struct, frozen=True):
    """The replay of one edit as a key of `Facts.once`: a rule asks whether it is worth reporting, then the finding is
    priced, then all findings together."""

    edit: JointEdit

    def __call__(self, facts: Facts) -> JointReplay:
        return replay_launch(launch_of(facts), self.edit)


@derived_once
def _replay_unedited(facts: Facts) -> JointReplay:
    return replay_launch(launch_of(facts))


def replay_of_launch(facts: Facts, edit: JointEdit | None = None) -> JointReplay:
    """The replay of all ranks, as recorded or with an edit; each is made once."""
    return _replay_unedited(facts) if edit is None else facts.once(_Replaying(edit))


def _spread_of_steps(launch: Launch) -> float:
    """The median absolute deviation of the ranks' steps from the median, as a share of it."""
    durations = np.concatenate([np.zeros(0), *(table.steps.duration_ns for table in launch.tables)])
    if not len(durations):
        return 0.0
    return relative_deviation(durations)
