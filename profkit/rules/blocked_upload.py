"""Training stops while files or results are sent, fetched or copied.

What it detects
Lines between the first step and the last at which the main thread waits for a socket, copies files, waits for a command
such as an upload, or for input, at least twice and for more than 3 % of the run. Batches that a
DataLoader fetches are `input-bound`; files that `torch.save` writes are `checkpoint-stops-training`.

Why is this bad?
Nothing is computed while the main thread waits. A slow network then sets the speed of the training. In a study of 400
jobs with little use of their GPUs, 2 % of the causes were results that were uploaded in between, and 5 % data that was
read from far away (Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE 2024).

Example
    for epoch in range(epochs):
        train(model, loader)
        client.upload_file("metrics.json", bucket, f"{epoch}.json")

Use instead
    uploads = ThreadPoolExecutor(1)
    for epoch in range(epochs):
        train(model, loader)
        uploads.submit(client.upload_file, "metrics.json", bucket, f"{epoch}.json")

How the saving is estimated
All of that time for transfers and copies, as another thread can wait instead. Of input, one more wait after the last
step counts, too. For other programs it is a bound, since they may need the same CPUs; so these are opportunities.
"""

from __future__ import annotations

from msgspec.structs import replace

from profkit.patterns import Places
from profkit.patterns.whole_run.phases import (
    ASKING,
    CHILD,
    COPYING,
    NETWORK,
    Repeated,
    repeated_between_steps,
    whole_run,
)
from profkit.rules.base import (
    MEDIUM_FROM,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    When,
    format_share,
    format_time,
    rule,
)

_WHAT = {
    NETWORK: "the network",
    COPYING: "files to be copied",
    CHILD: "another program",
    ASKING: "input",
}
_FIXES = {
    NETWORK: "Let another thread or process send or fetch it, such as a ThreadPoolExecutor with one worker, and wait "
    "for it at the end. Or keep what is fetched on a local disk.",
    COPYING: "Let another thread copy, such as a ThreadPoolExecutor with one worker, and wait for it at the end.",
    CHILD: "Start it with `subprocess.Popen` and look at its result later, before the next one starts.",
    ASKING: "Run what needs a person's answers where no device waits for them.",
}
_ONE, _ONE_MORE = 0.5, 2.0
"""Times a usual visit: people take uneven time to answer, and much more is another wait."""
_UNCERTAINTY = 0.25
"""Networks and file systems take uneven time."""


@rule(Kind.FAULT, Need.WHOLE_RUN)
def blocked_upload(facts: Facts) -> Suspicions:
    """Each line that waits is a finding."""
    whole = whole_run(facts)
    for label in _WHAT if whole is not None else ():
        for each in repeated_between_steps(facts, label):
            found = _with_last(each) if label == ASKING else each
            share = found.time_ns / whole.programs_ns if whole is not None else 0.0
            if share >= MEDIUM_FROM:
                yield _suspect(found, label, share)


def _with_last(found: Repeated) -> Repeated:
    """With the question after the last step, if it is as those before: who is not asked does not answer it, either."""
    usual_ns = found.time_ns / found.visits
    is_one = _ONE * usual_ns <= found.after_ns <= _ONE_MORE * usual_ns
    return replace(found, time_ns=found.time_ns + found.after_ns, visits=found.visits + 1) if is_one else found


def _suspect(found: Repeated, label: str, share: float) -> Suspicion:
    is_sure = label in {NETWORK, COPYING}
    return Suspicion(
        message=f"{format_time(found.time_ns)} of the run ({format_share(share)}) passes here, waiting for "
        f"{_WHAT[label]}. Training stops for it at least {found.visits} times.",
        fix=_FIXES[label],
        kind=None if is_sure else Kind.OPPORTUNITY,
        severity=None if is_sure else Severity.MEDIUM,
        places=Places.of([Location.of(found.site)]),
        run_ns=found.time_ns,
        run_uncertainty=_UNCERTAINTY,
        run_when=When.BETWEEN,
        count=1,
        evidence={"waiting_ns_in_run": found.time_ns, "visits_seen": found.visits, "what": label},
    )
