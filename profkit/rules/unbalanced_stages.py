"""One stage of a pipeline has more to do than the others, and they wait for it.

What it detects
Ranks that messages join to a chain, each of which works on what the one before has sent and sends it on, and whose
gradients come back: a pipeline in training. One stage works longer in the steps than the mean of the others, by more
than chance (Student's t test of the differences, step by step, at a level of 1 % for the launch), and with stages of
equal work the step would be at least 3 % shorter. For several pipelines with equally many stages, their mean counts. A
stage that waits, for the pipeline to fill or for a slower one, is not reported: waits are not work.

Why is this bad?
A pipeline runs at the pace of its slowest stage: each micro-batch takes as long as it takes there, and all other stages
idle for the rest of the time. The stage with the embedding or with the loss over a large vocabulary is often the one.

Example
    stages = split(model.layers, parts=4)  # as many layers each
    stages[-1].append(vocabulary_head)  # which costs as much as five layers

Use instead
    stages = split(model.layers, sizes=[8, 8, 8, 3])
    stages[-1].append(vocabulary_head)

How the saving is estimated
All ranks are replayed together, and all stages work as long as their mean: those with less to do take over what the
longest gives up. Only whole layers can move, so hardly ever all of it can be gained.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.derive.launch.bubbles import stage_work, with_even_stages
from profkit.derive.launch.chance import LEAST_STEPS, is_beyond_chance
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.pipelines import Pipeline
from profkit.derive.launch.work_by_rank import WorkByRank, place_site
from profkit.patterns import Places
from profkit.rules.base import MEDIUM_FROM, CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_time, rule
from profkit.savings.launch.pipelines import pipelines_in_training
from profkit.savings.launch.uneven_inputs import uneven_inputs
from profkit.trace import Float64s

_FIX = (
    "Move layers from this stage to those with less to do, and count what the embedding and the loss cost too. "
    "If all stages have the same layers, this rank's device is slower: compare clocks, temperature and what "
    "else runs on it."
)


@rule(Kind.OPPORTUNITY, Need.RANKS, Need.MESSAGES)
def unbalanced_stages(facts: Facts) -> Suspicions:
    """Compare what the stages work in each step."""
    launch = facts.launch
    assert launch is not None
    pipelines = pipelines_in_training(facts)
    if not pipelines:
        return
    own = uneven_inputs(facts).own
    if len(own.steps) < LEAST_STEPS:
        raise CannotLook("fewer than three steps were recorded of all ranks: a long stage cannot be told from chance")
    for stages in sorted({len(one.stages) for one in pipelines}):
        alike = [one for one in pipelines if len(one.stages) == stages]
        worked_ns = stage_work(own, alike)
        longest = int(worked_ns.mean(axis=1).argmax())
        others_ns = np.delete(worked_ns, longest, axis=0).mean(axis=0)
        if is_beyond_chance(worked_ns[longest] - others_ns, stages):
            ranks = [one.stages[longest] for one in alike]
            yield Suspicion(
                message=_tell(launch, ranks, longest, worked_ns),
                fix=_FIX,
                launch_edit=with_even_stages(launch, own, alike),
                worth=MEDIUM_FROM,
                count=1,
                places=_places(launch, own, alike, longest),
                evidence={
                    "stage": longest + 1,
                    "stages": stages,
                    "rank": launch.tables[ranks[0]].identity.rank,
                    "works_ns_per_step": int(worked_ns[longest].mean()),
                    "mean_ns_per_step": int(worked_ns.mean()),
                    "pipelines": len(alike),
                },
            )


def _tell(launch: Launch, ranks: Sequence[int], longest: int, worked_ns: Float64s) -> str:
    numbers = [str(launch.tables[at].identity.rank) for at in ranks[:3]]
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(numbers)}{' …' if len(ranks) > 3 else ''}"
    return (
        f"Stage {longest + 1} of {len(worked_ns)} ({who}) works {format_time(float(worked_ns[longest].mean()))} "
        f"a step, the mean stage {format_time(float(worked_ns.mean()))}. The others wait for it at each "
        "micro-batch."
    )


def _places(launch: Launch, own: WorkByRank, pipelines: Sequence[Pipeline], longest: int) -> Places:
    """Where the stage works longest."""
    spent_ns = np.sum([own.place_ns[one.stages[longest]].sum(axis=0) for one in pipelines], axis=0)
    ordered = (place_site(launch, own.places[at]) for at in np.argsort(-spent_ns, kind="stable").tolist())
    return Places.of_sites([next((one for one in ordered if one is not None), None)])
