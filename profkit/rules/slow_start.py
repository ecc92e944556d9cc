"""Much of the run passes before its first step: imports, downloads, preparing data, the first batch, compiling.

What it detects
One thing before the first step that takes a fifth of the run and two seconds, or a twentieth and a minute: a line that
imports, reads a checkpoint, waits for the network, copies files or waits for another program; a function of the program
itself; the wait for the first batch; and compiling, whenever that happens. `import torch` and the first use of a GPU
are not reported: every such program has them. profkit looks at the main thread during the whole run for this.

Why is this bad?
A GPU that is already taken waits meanwhile. Each restart, each rank and each run of a search pays it again. In a study
of 400 jobs with little use of their GPUs, 11 % of the causes were data that was prepared or fetched by the job itself
and libraries that it installed (Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs, ICSE
2024).

Example
    rows = [tokenize(line) for line in open("corpus.txt")]
    train(rows)

Use instead
    if not os.path.exists("tokens.npy"):
        np.save("tokens.npy", tokenize_all("corpus.txt"))
    train(np.load("tokens.npy", mmap_mode="r"))

How the saving is estimated
All of that time, a bound: something of it stays, such as reading what was prepared. So this is an opportunity. Of
compiling, only the time counts in which the compiler wrote code for graphs that no cache held, if it tells: a warm
cache spares at least most of that. In a longer run the share is smaller, as a start comes once.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from profkit.patterns import Places
from profkit.patterns.whole_run.phases import (
    BEFORE,
    CHILD,
    COMPILING,
    COPYING,
    DATA,
    IMPORTS,
    LOADING,
    NETWORK,
    whole_run,
)
from profkit.patterns.whole_run.run_parts import RunPart, outside_steps
from profkit.rules.base import (
    CannotLook,
    Facts,
    Kind,
    Location,
    Need,
    Severity,
    Suspicion,
    Suspicions,
    When,
    format_count,
    format_share,
    format_time,
    rule,
)
from profkit.run.directory import GeneratedCode

_LEAST_SHARE, _LEAST_NS = 0.2, 2_000_000_000
"""Of a short run: any program needs a second or two to begin."""
_LONG_SHARE, _LONG_NS = 0.05, 60_000_000_000
"""A minute is worth a change even if the run takes a quarter of an hour."""
_MUCH = 0.4
"""Of the run, from which on it is of medium severity, as a minute is. An import that takes seconds is a small thing
even in a run of seconds."""
_UNCERTAINTY = 0.5
"""How much of it a prepared file or a warm cache would leave is not known."""
_CACHE_UNCERTAINTY = 0.2
"""What is in the cache still has to be loaded, and tracing for the backward pass goes, too. Two programs on a CPU: 32.0
and 48.3 s told, 36.3 and 46.2 s won by the next run."""
_INSTALLS = re.compile(r"\b(pip|conda|apt|apt-get|uv)\b.*\binstall\b")
_UNAVOIDABLE = {IMPORTS: re.compile(r"\btorch\b"), BEFORE: re.compile(r"\.cuda\(|\.to\(|torch\.cuda\.")}
"""The text of lines that import PyTorch, or parts of it as its optimizers do when the first is made, and of those that
use a GPU for the first time."""
_WHAT = {
    IMPORTS: "Importing what this line needs",
    LOADING: "Reading a checkpoint at this line",
    NETWORK: "Waiting for the network at this line",
    COPYING: "Copying files at this line",
    CHILD: "Waiting for another program at this line",
    DATA: "The wait for the first batch",
    COMPILING: "Compiling what this line calls",
    BEFORE: "The program's own work in this function",
}
_FIXES = {
    IMPORTS: "Import it where it is used, or not at all if only a small part of it is needed. `python -X importtime` "
    "tells which of its modules takes the time.",
    LOADING: "Read it from a local disk, with `torch.load(..., mmap=True)` or from safetensors, and straight to the "
    "device that needs it.",
    NETWORK: "Fetch it once before the job, onto a local disk or into the image; or let training begin while the rest "
    "arrives.",
    COPYING: "Copy before the job starts, or while training has begun with the first part.",
    CHILD: "Run that program before the job that holds the device.",
    DATA: "Look at what the dataset does when it is first used, and at how many batches the workers make ahead. "
    "Start the loader's iterator before the model is built.",
    COMPILING: "Keep the compiler's cache between runs (TORCHINDUCTOR_CACHE_DIR on a disk that stays), and compile the "
    "repeated block instead of the whole model.",
    BEFORE: "Do it once, save the result, and read that; or do it in a job that holds no device.",
}
_TRACING_FIX = "Compile the repeated block instead of the whole model, so that less is traced. A cache spares no more."
_INSTALL_FIX = "Install into the image or environment that the job starts from."


@rule(Kind.OPPORTUNITY, Need.WHOLE_RUN)
def slow_start(facts: Facts) -> Suspicions:
    """Each function, import or wait is a finding."""
    outside, whole = outside_steps(facts), whole_run(facts)
    if outside is None or whole is None:
        raise CannotLook("no step was seen, so nothing is known to come before the first one")
    for part in outside.start:
        share = part.time_ns / whole.programs_ns
        is_much = share >= _LEAST_SHARE and part.time_ns >= _LEAST_NS
        is_long = share >= _LONG_SHARE and part.time_ns >= _LONG_NS
        needed = _UNAVOIDABLE.get(part.label)
        if (is_much or is_long) and not (needed and needed.search(part.site.source)):
            found, code = _suspect(part, share), facts.run.generated
            if part.label != COMPILING or code is None:
                yield found
                continue
            compiling_ns = sum(other.time_ns for other in outside.start if other.label == COMPILING)
            yield _with_cache(found, part.time_ns / compiling_ns, code)


def _with_cache(found: Suspicion, part: float, code: GeneratedCode) -> Suspicion:
    """What a cache of generated code would have spared, for a line with this part of all compiling: the compiler tells
    it of the whole process."""
    graphs, spared_ns = code.hits + code.misses, min(int(code.generating_ns * part), found.run_ns)
    if code.misses and spared_ns:
        return replace(
            found,
            message=f"{found.message} A warm cache would have spared about {format_time(spared_ns)}: the code of "
            f"{code.misses} of {format_count(graphs, 'graph')} was not in it.",
            run_ns=spared_ns,
            run_uncertainty=_CACHE_UNCERTAINTY,
            evidence={**found.evidence, "cache_hits": code.hits, "cache_misses": code.misses, "spared_ns": spared_ns},
        )
    if code.misses:
        return found
    return replace(
        found,
        message=f"{found.message} The code of all {format_count(code.hits, 'graph')} came out of the cache, which "
        f"spared {format_time(code.spared_ns)}: what is left is tracing and loading.",
        fix=_TRACING_FIX,
        evidence={**found.evidence, "cache_hits": code.hits, "cache_misses": 0, "spared_ns": 0},
    )


def _suspect(part: RunPart, share: float) -> Suspicion:
    when = "" if part.label == COMPILING else " before the first step"
    is_heavy = part.time_ns >= _LONG_NS or (share >= _MUCH and part.label != IMPORTS)
    return Suspicion(
        message=f"{_WHAT[part.label]} takes {format_time(part.time_ns)}{when}, {format_share(share)} of the run.",
        fix=_INSTALL_FIX if part.label == CHILD and _INSTALLS.search(part.site.source) else _FIXES[part.label],
        places=Places.of([Location.of(part.site)]),
        run_ns=part.time_ns,
        run_uncertainty=_UNCERTAINTY,
        run_when=When.ANY if part.label == COMPILING else When.BEFORE,
        severity=Severity.MEDIUM if is_heavy else Severity.LOW,
        count=1,
        confidence=0.8,
        evidence={"start_ns_in_run": part.time_ns, "cpu_ns": part.cpu_ns, "what": part.label},
    )
