"""Ranks get inputs of different size in a step, and those with less wait for those with more.

What it detects
Ranks that take part in the same collectives and call the same number of matrix products, convolutions and embeddings,
on inputs of different size, if a rank's own work is longer the larger its input, by more than chance (Student's t test
of Pearson's correlation, step by step, at a level of 1 % for the launch). The ranks may take turns, or one of them may
always have the most; then its work must be longer by about as much as its input is larger. Sizes come from the recorded
shapes, else from what these operators allocate for their results. Sizes that do not correlate with the time are not
reported, nor are stages of a pipeline.

Why is this bad?
A step takes as long as that of the rank with the most tokens. With lengths that vary from batch to batch some rank
nearly always has a long one, the more surely the more ranks there are, and all others idle meanwhile. On average no
rank is slow, so nobody looks for it.

Example
    sampler = DistributedSampler(texts)
    loader = DataLoader(texts, batch_size=16, sampler=sampler, collate_fn=pad_to_longest)

Use instead
    # Batches of about as many tokens each, made of texts of about one length, and dealt out to the ranks.
    batches = TokenBudgetBatches(texts, tokens=16_384, rank=rank, num_replicas=world_size)
    loader = DataLoader(texts, batch_sampler=batches, collate_fn=pad_to_longest)

How the saving is estimated
All ranks are replayed together, and each rank whose input is larger than the mean of the step works as long as it would
with the mean, by the slope of time over size. It is an opportunity: other samples then meet in a step.
"""

from __future__ import annotations

import numpy as np

from profkit.derive.launch.chance import LEAST_STEPS
from profkit.derive.launch.imbalance import Imbalance
from profkit.derive.launch.launch import Launch
from profkit.derive.launch.work_by_rank import WorkByRank
from profkit.patterns import loader_places
from profkit.rules.base import CannotLook, Facts, Kind, Need, Suspicion, Suspicions, format_share, format_time, rule
from profkit.savings.launch.uneven_inputs import uneven_inputs
from profkit.trace import distinct

_FIX = (
    "Give all ranks about as much to compute in a step. Sort samples by length into buckets and draw the "
    "batches of a step from one bucket. Or fill each rank's batch up to a budget of tokens and deal batches of "
    "about one size out to the ranks. A batch sampler does that; a DistributedSampler does not know lengths. If "
    "the batches are equal and a router sends tokens to experts on the ranks, balance the router."
)


@rule(Kind.OPPORTUNITY, Need.RANKS)
def unbalanced_input(facts: Facts) -> Suspicions:
    """Compare the size of the ranks' inputs with what they work."""
    launch = facts.launch
    assert launch is not None
    uneven = uneven_inputs(facts)
    imbalance = uneven.imbalance
    if imbalance is None:
        raise CannotLook("fewer than three steps were recorded of all ranks: size and time may correlate by chance")
    if not imbalance.compared:
        raise CannotLook(_why_not(launch, uneven.own))
    if uneven.edit is not None:
        yield Suspicion(
            message=_tell(launch, imbalance),
            fix=_FIX,
            launch_edit=uneven.edit,
            count=1,
            places=loader_places(facts, np.flatnonzero(facts.loading)),
            evidence={
                "larger": round(_larger(imbalance), 4),
                "longer_ns_per_step": int(_longer_ns(imbalance)),
                "correlation": round(imbalance.correlation, 3),
                "steps": len(imbalance.steps),
                "ranks": len(launch.tables),
            },
        )


def _why_not(launch: Launch, own: WorkByRank) -> str:
    if len(distinct(own.kind)) == len(launch.tables):
        return "no two of the recorded ranks take part in the same collectives"
    known = [one.inputs for one in launch.tables if one.inputs is not None and (one.inputs.operators > 0).any()]
    if len(known) < 2 or not all((one.elements > 0).any() or (one.allocated_bytes > 0).any() for one in known):
        return "the size of the ranks' inputs was not recorded (record_shapes=True or profile_memory=True)"
    return f"the ranks call equally many operators in fewer than {LEAST_STEPS} steps: more than their inputs differs"


def _tell(launch: Launch, imbalance: Imbalance) -> str:
    most = np.bincount(imbalance.longer_ns[:, imbalance.steps].argmax(axis=0), minlength=len(launch.tables))
    rank = int(most.argmax())
    who = f"most often rank {launch.tables[rank].identity.rank}, in {most[rank]} of {len(imbalance.steps)} steps"
    return (
        f"In a step the largest input of a rank is {format_share(_larger(imbalance))} above the mean of the "
        f"ranks ({who}). That rank works {format_time(_longer_ns(imbalance))} longer for it, and the others "
        "wait."
    )


def _larger(imbalance: Imbalance) -> float:
    """By how much the largest input is above the mean, in the median step."""
    return float(np.median(imbalance.ratio[:, imbalance.steps].max(axis=0) - 1))


def _longer_ns(imbalance: Imbalance) -> float:
    return float(imbalance.longer_ns[:, imbalance.steps].max(axis=0).mean())
