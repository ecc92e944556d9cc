"""The bubble of a pipeline: how long its stages are idle because no micro-batch has arrived, and what makes it smaller.

With ``p`` equal stages and ``m`` micro-batches, a step takes ``m + p - 1`` times as long as one micro-batch in one
stage, and each stage works for ``m`` of these times (Narayanan et al., Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM, 2021, arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from profkit.derive.launch.joint_edits import JointEdit, ask_earlier, combine_joint
from profkit.derive.launch.lateness import WaitCosts
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Pipeline
from profkit.derive.launch.table import RankTable
from profkit.derive.launch.work_by_rank import WorkByRank, scale_work
from profkit.trace.events import Float64s, Int64s
from profkit.trace.statistics import among

_EVEN_UNCERTAINTY = 0.3
"""Only whole layers can move between stages, so stages do not become quite equal."""
_HALF_UNCERTAINTY = 1.0
"""From nothing to twice the estimate."""


class Bubble(Struct, frozen=True):
    """By stage, in the mean step: how long it waits for messages of its pipeline, without their transfers, how long it
    works, and how long the step takes."""

    idle_ns: Float64s
    worked_ns: Float64s
    step_ns: Float64s

    @property
    def share(self) -> float:
        """The idle share of the step, over all stages."""
        return float(self.idle_ns.sum() / max(float(self.step_ns.sum()), 1.0))


def measure_bubble(launch: Launch, costs: WaitCosts, pipeline: Pipeline) -> Bubble:
    parts = launch.parts
    steps = np.unique(launch.joint.step[pipeline.joint])
    mine = among(parts.joint, pipeline.joint)
    waited_ns = np.bincount(parts.table[mine], costs.waited_ns[mine], len(launch.tables))
    idle_ns = waited_ns[list(pipeline.stages)] / max(len(steps), 1)
    tables = [launch.tables[at] for at in pipeline.stages]
    worked_ns = [one.work.time_ns[among(one.work.step, steps)].sum() / max(len(steps), 1) for one in tables]
    return Bubble(idle_ns, np.array(worked_ns), np.array([_length_ns(one, steps) for one in tables]))


def even_share(pipeline: Pipeline) -> float:
    """The bubble's share of the step if stages were equal and waited for nothing else."""
    others = len(pipeline.stages) - 1
    return others / (pipeline.micro_batches + others)


def with_half_batches(launch: Launch, pipelines: Sequence[Pipeline], part: float = 1.0) -> JointEdit:
    """Twice as many micro-batches of half the size, or that ``part`` of the way.

    If half a micro-batch took half as long, it could be sent on when half of the work is done. It takes longer, because
    each one reads the weights and launches the kernels again. Very small ones take as long as before, and nothing is
    gained. A recording of one size does not show which is true, so the estimate is the middle: sent after three
    quarters of the work, with a range from nothing to all.
    """
    edits = []
    for pipeline in pipelines:
        early_ns = np.zeros(len(launch.joint), dtype=np.int64)
        for at in pipeline.stages:
            joint, row = _sent_by(launch, pipeline, at)
            early_ns[joint] = (_worked_before(launch.tables[at], row) * (part / 4)).astype(np.int64)
        edits.append(ask_earlier(pipeline.joint, early_ns[pipeline.joint], _HALF_UNCERTAINTY))
    return combine_joint(edits)


def with_even_stages(launch: Launch, own: WorkByRank, pipelines: Sequence[Pipeline]) -> JointEdit:
    """In each step, each stage of a pipeline works as long as their mean: some less, others more."""
    edits = []
    for pipeline in pipelines:
        worked_ns = own.total_ns[list(pipeline.stages)]
        share = worked_ns.mean(axis=0) / np.maximum(worked_ns, 1)
        edits += [
            scale_work(launch, own, at, kept, _EVEN_UNCERTAINTY)
            for at, kept in zip(pipeline.stages, share, strict=True)
        ]
    return combine_joint(edits)


def stage_work(own: WorkByRank, pipelines: Sequence[Pipeline]) -> Float64s:
    """The work by stage and step, the mean over pipelines with equally many stages."""
    worked: Float64s = np.mean([own.total_ns[list(one.stages)] for one in pipelines], axis=0)
    return worked


def _length_ns(table: RankTable, steps: Int64s) -> float:
    known = among(table.steps.number, steps)
    lengths = table.steps.duration_ns[known]
    return float(lengths.mean()) if len(lengths) else 0.0


def _sent_by(launch: Launch, pipeline: Pipeline, at: int) -> tuple[Int64s, Int64s]:
    """The pipeline's messages that this rank sends, and their rows in its table."""
    parts, table = launch.parts, launch.tables[at]
    mine = np.flatnonzero((parts.table == at) & among(parts.joint, pipeline.joint))
    mine = mine[table.sends[parts.row[mine]]]
    return parts.joint[mine], parts.row[mine]


def _worked_before(table: RankTable, row: Int64s) -> Int64s:
    """How long the rank has worked on what it sends: since it last sent or received, or the step began."""
    taken, sends = table.collectives, table.sends
    arrived_ns = taken.arrived_ns[~sends | taken.waited]
    before = np.sort(np.concatenate([taken.issue_ns[sends], arrived_ns, table.steps.start_ns]))
    at = np.searchsorted(before, taken.issue_ns[row]) - 1
    found: Int64s = np.where(at >= 0, taken.issue_ns[row] - before[at.clip(min=0)], 0)
    return found
