"""The stages of a pipeline stand idle while it fills and empties, as each step has few micro-batches.

What it detects
Ranks that messages join to a chain, each of which works on what the one before has sent and sends it on, and whose
gradients come back: a pipeline in training. It is reported if a step has fewer than four micro-batches for each stage,
and twice as many would give back 6 % of the step or more if those of half the size took half as long. Not reported:
chains of ranks that exchange borders, pipelines with a stage that was not recorded, and idle time that has other
reasons than the number of micro-batches, as in a pipeline with many of them.

Why is this bad?
The last stage has nothing to do until the first micro-batch has gone through all others, and the first has nothing to
do until its gradients are back. With p equal stages and m micro-batches each of them idles for (p - 1)/(m + p - 1) of
the step: half of it with two stages and the batch in one piece, 43 % with four of each (Narayanan et al., Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, 2021).

Example
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss)  # of a pipeline of four

Use instead
    schedule = Schedule1F1B(stage, n_microbatches=16, loss_fn=loss)

With as many micro-batches 1F1B idles as long as GPipe, but holds the activations of at most four of them, so there is
room for more.

How the saving is estimated
All ranks are replayed together. At best, twice as many micro-batches take half as long each, and a stage sends its
result on after half of the work. At worst they take as long as those of twice the size, as small operators do, and
nothing is gained. One recording does not show which it is: the estimate is the middle, and the range covers both.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.launch.bubbles import Bubble, even_share, measure_bubble, with_half_batches
from profkit.derive.launch.chance import LEAST_STEPS
from profkit.derive.launch.joint_edits import JointEdit
from profkit.derive.launch.lateness import WaitCosts, weigh_lateness
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Pipeline
from profkit.patterns import Places
from profkit.patterns.named_lines import call_lines
from profkit.rules.base import (
    MEDIUM_FROM,
    CannotLook,
    Facts,
    Kind,
    Need,
    Suspicion,
    Suspicions,
    format_count,
    format_share,
    rule,
)
from profkit.savings.launch.launch_savings import predict_launch_saving
from profkit.savings.launch.pipelines import pipelines_in_training
from profkit.trace import among, distinct

_ENOUGH = 4
"""With this many micro-batches for each stage the bubble costs next to nothing (Huang et al., GPipe: Efficient Training
of Giant Neural Networks using Pipeline Parallelism, NeurIPS 2019)."""
_FIX = (
    "Cut the batch into more micro-batches (`n_microbatches=`), four or more for each stage. Try several "
    "numbers: operators on very small ones take no less time. If memory is short, use `Schedule1F1B`, which "
    "keeps the activations of as many as there are stages. Or put several stages on each rank "
    "(`ScheduleInterleaved1F1B`): its bubble is smaller with as many micro-batches."
)


@rule(Kind.OPPORTUNITY, Need.RANKS, Need.MESSAGES)
def pipeline_bubble(facts: Facts) -> Suspicions:
    """Compare how long the pipeline idles with how long it would with more micro-batches."""
    launch = facts.launch
    assert launch is not None
    pipelines = pipelines_in_training(facts)
    if not pipelines:
        return
    steps = distinct(launch.joint.step[pipelines[0].joint])
    if len(steps) < LEAST_STEPS:
        raise CannotLook("fewer than three steps of the pipeline were recorded")
    few = [one for one in pipelines if one.micro_batches < _ENOUGH * len(one.stages)]
    if not few:
        return
    costs = weigh_lateness(launch)
    bubble, worst = max(((measure_bubble(launch, costs, one), one) for one in few), key=lambda found: found[0].share)
    yield Suspicion(
        message=_tell(worst, bubble),
        fix=_FIX,
        launch_edit=_priced(facts, launch, few),
        worth=MEDIUM_FROM,
        count=1,
        confidence=0.5,
        places=_places(launch, costs, few),
        evidence={
            "stages": len(worst.stages),
            "micro_batches": worst.micro_batches,
            "idle_fraction": round(bubble.share, 4),
            "even_fraction": round(even_share(worst), 4),
            "pipelines": len(few),
        },
    )


def _priced(facts: Facts, launch: Launch, pipelines: list[Pipeline]) -> JointEdit:
    """Limited to what equal stages would gain, by the middle estimate a quarter of the bubble. If a stage's forward and
    backward passes follow each other, as in the last one, it sends gradients on sooner than the formula assumes."""
    edit = with_half_batches(launch, pipelines)
    most, found = max(map(even_share, pipelines)) / 4, predict_launch_saving(facts, edit).fraction
    return with_half_batches(launch, pipelines, most / found) if found > most else edit


def _tell(pipeline: Pipeline, bubble: Bubble) -> str:
    batches = format_count(pipeline.micro_batches, "micro-batch", "micro-batches")
    count = len(pipeline.stages)
    return (
        f"The stages of a pipeline of {count} ranks idle for {format_share(bubble.share)} of a step with "
        f"{batches}. With equal stages {format_share(even_share(pipeline))} is lost while it fills and empties."
    )


def _places(launch: Launch, costs: WaitCosts, pipelines: list[Pipeline]) -> Places:
    """The lines at which the stages wait for each other, the longest wait first."""
    parts = launch.parts
    mine = among(parts.joint, np.concatenate([one.joint for one in pipelines]))
    return call_lines(launch.tables, parts.table[mine], parts.row[mine], costs.waited_ns[mine])
