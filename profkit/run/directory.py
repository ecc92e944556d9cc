"""The run directory: where one recording lives, and the values that describe it.

::

    <run directory>/
      run.json                     what was run, with which settings, and what went wrong with the recording
      <host>_<pid>.<ns>.pt.trace.json.gz   the trace of torch.profiler (torch-tb-profiler looks for this name)
      callsites.json               the lines that the trace's line marks stand for
      sources.json                 these lines and a few around each, as they were when the program ran
      live.json                    what was alive at the end of each recorded step
      samples.json                 samples of host and GPU load
      device_memory.json           what PyTorch's allocator held on each GPU at the ends of recorded steps
      snapshot.pickle              a snapshot of that allocator, of the located step or of the moment it ran out
      account.json                 what the whole run spent its time on (`profkit.run.whole_run`)
      stacks.json                  where the plain steps spent their time, by samples of the program's stacks
      workers/                     what each DataLoader worker did (`profkit.trace.worker_records`)
      diagnosis.json, report.html  what profkit concluded

The directory of a launch of several processes holds one run directory for each of them::

    <launch directory>/
      launch.json                  which launch it is
      rank0/, rank1/ …             run directories; process<pid>/ where a rank was never known
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from profkit.core.errors import RunDirectoryError, UnreadableInput
from profkit.core.files.decoding import DAMAGE, decode_own
from profkit.core.files.kinds import is_own_file
from profkit.core.files.reading import read_file
from profkit.core.files.writing import create, refuse_links, write_file

RUN_FILE = "run.json"
LAUNCH_FILE = "launch.json"
CALLSITES_FILE = "callsites.json"
SOURCES_FILE = "sources.json"
LIVE_FILE = "live.json"
SAMPLES_FILE = "samples.json"
DEVICE_MEMORY_FILE = "device_memory.json"
ACCOUNT_FILE = "account.json"
INTERLUDE = "interlude"
"""The folder in a run directory with the recording of what passes between the steps, itself a run directory."""
STACKS_FILE = "stacks.json"
SNAPSHOT_FILE = "snapshot.pickle"
WORKERS_DIRECTORY = "workers"
RECORDING = "recording"
"""Among the files of a diagnosis: the whole path of a recording that lies elsewhere."""
DIAGNOSIS_FILE = "diagnosis.json"
REPORT_FILE = "report.html"
REPORTS = (DIAGNOSIS_FILE, REPORT_FILE)
TRACE_SUFFIXES = (".pt.trace.json.gz", ".pt.trace.json")
SMALL_FILES = (
    RUN_FILE,
    CALLSITES_FILE,
    SOURCES_FILE,
    LIVE_FILE,
    SAMPLES_FILE,
    DEVICE_MEMORY_FILE,
    ACCOUNT_FILE,
    STACKS_FILE,
)
"""What is read with the trace beside it, except the workers' files and the snapshot."""

_MAX_SIDE_FILE_BYTES = 64 << 20
_LEAST_FREE_BYTES = 4096
"""One page: a full disk may still accept an empty file."""
_Value = TypeVar("_Value")
_Missing = TypeVar("_Missing")


class CallSite(Struct, frozen=True):
    """One line of the user's code."""

    file: str
    line: int
    function: str
    source: str = ""


Sources = Mapping[str, Mapping[int, str]]
"""Lines of source text by file and number."""


class SharedHold(Struct, frozen=True):
    """What a name holds together with another name, ``path``: it stays as long as either holds it."""

    path: str
    graph_nodes: int
    bytes: int


class LiveHolder(Struct, frozen=True):
    """A name of the user's program and the tensors that it reached at the end of a step.

    ``graph_tensors`` counts the tensors with an autograd graph, ``graph_nodes`` the backward nodes reachable from them;
    ``bytes`` is the storage of all tensors reached. ``used_bytes`` is the part of that storage that the program's names
    use: a view uses less than the storage it keeps alive. ``is_bounded`` says that the container has a maximum, or that
    the program visibly empties it or joins it into one tensor. If it ``begins_anew``, the program visibly clears it or
    binds something fresh to it, again and again. ``shared`` covers only the few names that hold most.
    """

    path: str
    site: CallSite | None
    graph_tensors: int
    graph_nodes: int
    bytes: int
    tensors: int
    used_bytes: int | None = None
    is_bounded: bool = False
    shared: tuple[SharedHold, ...] = ()
    begins_anew: bool = False


class LiveSample(Struct, frozen=True):
    """What the user's names held at the end of a recorded step."""

    step: int
    holders: tuple[LiveHolder, ...]


class LoadSample(Struct, frozen=True):
    """One reading of the machine. Memory is in bytes, shares are 0 to 1, ``gpu_*`` is None without a GPU. ``switches``
    is how often threads of the process had gone to sleep by then (``getrusage``). ``others_cpus`` is how many of the
    CPUs that the process may use other processes, its children included, kept busy since the reading before.
    ``shared_bytes`` is the part of ``rss_bytes`` in mapped files and memory shared with other processes. None means
    unknown."""

    time_ns: int
    rss_bytes: int
    cpu_share: float
    gpu_share: float | None = None
    gpu_memory_bytes: int | None = None
    switches: int | None = None
    others_cpus: float | None = None
    shared_bytes: int | None = None


class DeviceMemorySample(Struct, frozen=True):
    """What PyTorch's allocator said of one device at the end of a step; ``step`` -1 is the end of the recording.

    ``allocated_bytes`` is what tensors take. ``reserved_bytes`` is that plus what is kept for later tensors;
    ``inactive_bytes`` of it lie unused in blocks that are partly in use. The peaks are since the program began, or
    since it reset them. ``retries`` counts requests that found room only once the cache was given back, ``failures``
    those that found none even then. ``total_bytes`` is all memory of the device, ``limit_bytes`` what the process may
    use of it, 0 for all (`torch.cuda.set_per_process_memory_fraction`).
    """

    step: int
    device: int
    total_bytes: int
    allocated_bytes: int
    allocated_peak_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    inactive_bytes: int = 0
    retries: int = 0
    failures: int = 0
    limit_bytes: int = 0


class SampledStack(Struct, frozen=True):
    """A stack of calls that samples met. ``lines`` are the program's lines in it, outermost first, by their numbers in
    `StackSamples.sites`. ``callee`` is what the last of them calls outside the program's own code, empty if unknown.
    ``thread`` is the number of the thread in `StackSamples.threads`. The lines from number ``batch_from`` on make a
    batch for a DataLoader; -1 if no batch is being made. ``in_torch`` says that the last line is in PyTorch's own
    Python code, which calls operators."""

    thread: int
    lines: tuple[int, ...]
    callee: str
    time_ns: int
    batch_from: int = -1
    in_torch: bool = False


class SampledThread(Struct, frozen=True):
    """``main`` is the recorded thread, ``worker`` the threads that make batches in all workers of the DataLoaders
    together, ``thread`` any other. The ``time_ns`` of its samples includes those without a line of the program."""

    kind: str
    name: str
    time_ns: int


class StackSamples(Struct, frozen=True):
    """Samples of the program's stacks, ``period_ns`` apart on average, over that many whole ``steps``. These are steps
    that nothing else watched or, if no such step came, the measured ones: they then ``were_recorded``. ``reason`` says
    why there are none. The stacks that take longest are kept."""

    reason: str = ""
    period_ns: int = 0
    steps: int = 0
    were_recorded: bool = False
    threads: tuple[SampledThread, ...] = ()
    sites: tuple[CallSite, ...] = ()
    stacks: tuple[SampledStack, ...] = ()


class Host(Struct, frozen=True):
    """The machine as the program may use it: CPUs in its affinity mask and cgroup, PyTorch's threads, memory, the
    processor's name (empty if unknown), and whether it multiplies bfloat16 in hardware."""

    cpus: int
    torch_threads: int
    memory_bytes: int
    processor: str = ""
    bfloat16: bool | None = None


class Rates(Struct, frozen=True):
    """The most that a device does: bytes per second between its memory and its arithmetic, and floating-point
    operations per second in matrix products by type (``float64``, ``float32``, ``tf32``, ``bfloat16``…)."""

    device: str
    bandwidth: float
    products: Mapping[str, float]


class LoaderUse(Struct, frozen=True):
    """A DataLoader that was iterated while steps were recorded. ``site`` is the program's line that made it, None if
    unknown or not the program's own. ``asked_ns`` is the total time of its requests for batches."""

    workers: int
    batch_size: int | None
    pin_memory: bool
    persistent_workers: bool
    site: CallSite | None = None
    asked_ns: int = 0


class Feeding(Struct, frozen=True):
    """How many CPUs the process kept busy in unrecorded steps (medians): while it asked a DataLoader for a batch, and
    from then until it asked again."""

    loading_cpus: float
    computing_cpus: float


class OptimizerUse(Struct, frozen=True):
    """An optimizer that stepped while steps were recorded: its class name, ``foreach`` and ``fused`` as the program set
    them (None: PyTorch chooses), and its number of parameters."""

    name: str
    foreach: bool | None
    fused: bool | None
    parameters: int


class GradientUse(Struct, frozen=True):
    """What became of the gradients of the located step. The numbers count the trace's nodes that add to a gradient
    (``torch::autograd::AccumulateGrad``) in order of their starts. An optimizer used the results of the ``taken`` ones.
    The ``thrown_away`` ones were cleared before the parameter's optimizer stepped. The ``unheld`` ones belong to
    parameters that no optimizer holds and nothing changes. Nothing read the last two."""

    taken: tuple[int, ...] = ()
    thrown_away: tuple[int, ...] = ()
    unheld: tuple[int, ...] = ()


class ZeroedResult(Struct, frozen=True):
    """A product in which the share ``zero`` of so many ``rows`` of one factor is multiplied by zeros. ``call`` is the
    number of its event in the located step; ``makers`` are the calls that made these rows for nothing else. If
    ``ignored``, it is a loss instead, and these are the rows whose targets it ignores."""

    call: int
    makers: tuple[int, ...]
    rows: int
    zero: float
    ignored: bool = False


class UnreadResult(Struct, frozen=True):
    """Calls whose results nothing reads, by the numbers of their events in the located step: the last one's, of the
    ``shape``, is taken by no call and thrown away, and those of the others go into it alone."""

    calls: tuple[int, ...]
    shape: tuple[int, ...]


class DenormalTensors(Struct, frozen=True):
    """Tensors on the CPU of this ``shape`` and ``type`` (``float`` or ``double``), of whose numbers the ``share`` is
    denormal: nearer to zero than the smallest normal number, but not zero. One thread took ``slow_ns`` to multiply one
    of their numbers, and ``usual_ns`` with ones in place of the denormal ones."""

    shape: tuple[int, ...]
    type: str
    share: float
    slow_ns: float
    usual_ns: float


class SharedRows(Struct, frozen=True):
    """A layer's ``call`` with so many ``rows``, of which the share ``again`` went through the same weights in an
    earlier call of the step, most of them in the ``first``. Both are the numbers of their events in the located step.
    """

    call: int
    first: int
    rows: int
    again: float


class SparseFactor(Struct, frozen=True):
    """A product, by the number of its event in the located step, with a factor of this ``shape`` of which the share
    ``zero`` of the numbers are zeros. It ``was_sparse`` if `to_dense` made it in the same step. If it ``picks``, it
    comes first and its rows are one-hot vectors; a recurrent layer begins with such a product."""

    call: int
    shape: tuple[int, ...]
    zero: float
    was_sparse: bool = False
    picks: bool = False


class Form(str, Enum):
    """What a matrix is: ``CENTRING`` has one number on its diagonal and another one everywhere else, ``ADDING_UP`` one
    number in each row up to its diagonal, or from it on, and zeros; a batch may hold one matrix, many times ``EQUAL``.
    """

    NONE = "none"
    UNREAD = "unread"
    DIAGONAL = "diagonal"
    CENTRING = "centring"
    ADDING_UP = "adding-up"
    EQUAL = "equal"
    SEPARABLE = "separable"


class MatrixForm(Struct, frozen=True):
    """A product, a decomposition or a convolution, by the number of its event in the located step, that takes a matrix,
    or a batch of them, of this ``form`` and ``shape``. ``others`` are the numbers of what it is multiplied with, else
    the rows."""

    call: int
    form: Form
    shape: tuple[int, ...]
    others: int


class Recomputation(Struct, frozen=True):
    """Calls of PyTorch whose result existed already, by the numbers of their events in the located step. ``again``
    repeats another call of that step, given with its number; ``each_step`` is repeated by the next step. The inputs
    have not changed in between, the calls draw no random numbers, and nothing writes to their results. ``looked_at``
    is the number of the step's calls that the watch looked at: of many it samples some; 0 if unknown. ``zeroed`` are
    results that are multiplied by zeros, ``unread`` those that nothing reads, ``rows`` layers given rows that they were
    given before, ``sparse`` products with a factor of zeros; None if not looked at: the watch must see the whole step,
    on the host. ``forms`` are the calls on matrices whose form was looked at."""

    again: tuple[tuple[int, int], ...] = ()
    each_step: tuple[int, ...] = ()
    looked_at: int = 0
    zeroed: tuple[ZeroedResult, ...] | None = None
    unread: tuple[UnreadResult, ...] | None = None
    rows: tuple[SharedRows, ...] | None = None
    sparse: tuple[SparseFactor, ...] | None = None
    forms: tuple[MatrixForm, ...] | None = None


class JoinedCopies(Struct, frozen=True):
    """The number of a call that puts one tensor so many ``times`` side by side, and the tensor's shape and the bytes of
    a number."""

    call: int
    shape: tuple[int, ...]
    times: int
    item_bytes: int


class DataFlow(Struct, frozen=True):
    """Which of PyTorch's calls of the located step made what others take, as far as it was followed. ``takes`` has one
    entry for each call, in order: for each tensor the number of the call that made its memory or wrote to it last, or a
    negative number that stands for memory which was there before. Calls in ``unmarked`` have no event in the trace; the
    others have the numbers 0, 1, 2, … there. ``reads`` are calls that give Python numbers of a tensor; ``backward`` are
    those that add to the gradients of leaves. At the ``gaps`` calls take what was not followed. The calls of ``copies``
    are given a list of one tensor, or of equal views of one, and nothing else."""

    takes: tuple[tuple[int, ...], ...] = ()
    unmarked: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    backward: tuple[int, ...] = ()
    gaps: tuple[int, ...] = ()
    copies: tuple[JoinedCopies, ...] = ()


class RepeatedCall(Struct, frozen=True):
    """A line, the ``site``, that calls a function with arguments of earlier calls. The ``callee`` is the function's
    qualified name; ``defined`` is its ``def``. Of one step: ``calls`` of it are made, ``of_line`` with
    those at other places of the line, and of the ones ``looked_at``
    repeat so many an earlier one of the same step (``again``) or of the step before (``across``): arguments and result
    are equal, or it is the same object.
    ``differing`` calls of both steps gave another result than their arguments did before, or somebody wrote into it.
    ``spent_ns`` is the CPU time of the calls looked at, while recording slows them. If not ``is_whole``, the watch
    ended within the step.

    With ``is_variable`` the line makes a variable, named by ``callee``, of the function ``defined``. Whenever a call of
    this function ended, the variable held the same: calls are those of the function."""

    site: CallSite
    callee: str
    defined: CallSite
    calls: int = 0
    of_line: int = 0
    looked_at: int = 0
    again: int = 0
    across: int = 0
    differing: int = 0
    is_same_object: bool = False
    spent_ns: int = 0
    is_whole: bool = True
    is_variable: bool = False


class PaddedBatch(Struct, frozen=True):
    """One batch of a `PaddedInput`: its ``length`` in positions, and how many of these a row uses: the ``longest`` one
    and on average (``mean``). It has that many ``rows``."""

    length: int
    longest: int
    mean: float
    rows: int


class PaddedInput(Struct, frozen=True):
    """A tensor of a batch whose rows end in padding (or, ``is_left``, begin with it), as a DataLoader gave it or as it
    entered the model. ``shape`` is that of its last batch, with the rows along ``batch_dim`` and the positions along
    ``dim``. ``kind`` is ``mask``, ``ids`` or ``values``. ``site`` is the line that calls the model, None if the tensor
    was only seen in a DataLoader's batch; ``made`` are the lines that pad it, as far as they are known. ``batches`` are
    those of the steps that were watched, ``later`` some of the timed steps behind the recorded ones."""

    name: str
    shape: tuple[int, ...]
    batch_dim: int
    dim: int
    kind: str
    is_left: bool
    batches: tuple[PaddedBatch, ...]
    site: CallSite | None = None
    made: tuple[CallSite, ...] = ()
    later: tuple[PaddedBatch, ...] = ()


class Watch(str, Enum):
    """What a recording watches besides the trace. The value is its name in ``run.json``."""

    CALLS = "calls"
    FUNCTIONS = "functions"
    GRADIENTS = "gradients"
    NAMES = "names"
    LINES = "lines"
    OPENING = "opening"
    BATCHES = "batches"
    PADDING = "padding"


class Unwatched(Struct, frozen=True):
    """A watch that ended before it had seen everything, or never began. ``watch`` is the value of a `Watch`; ``reason``
    is a sentence: what stopped it, and what to do."""

    watch: str
    reason: str


class GraphBreak(Struct, frozen=True):
    """A place where PyTorch's compiler had to stop tracing: its reason, how often, and the lines that led there,
    outermost first. The last ``library_frames`` of these are not the user's."""

    reason: str
    stack: tuple[CallSite, ...]
    library_frames: int = 0
    count: int = 1


class Compilation(Struct, frozen=True):
    """One compilation of a function. ``frame`` is the compiler's number for the function. ``site`` is its first line,
    None if the compiler gave up early or if this part was compiled later, by a backward pass. ``reason`` says why
    earlier compilations did not fit, ``failure`` why there is none, and ``failed_at`` is where the compiler stopped."""

    frame: int
    site: CallSite | None
    duration_ns: int
    reason: str = ""
    failure: str = ""
    failed_at: CallSite | None = None


class SkippedGraph(Struct, frozen=True):
    """A CUDA graph that was asked for (``mode="reduce-overhead"``) but that the compiler went without: its reason, the
    user's lines that led to it, innermost last, and the compiler's number for the function, -1 if it has none."""

    reason: str
    stack: tuple[CallSite, ...] = ()
    frame: int = -1


class GeneratedCode(Struct, frozen=True):
    """The code that the compiler's backend made for graphs of all functions, those of libraries, too, such as a module
    that is compiled from outside; and what its caches had to do with it. The code of
    ``hits`` graphs lay in a cache, which spared ``spared_ns``. That of ``misses`` did not: writing and compiling it
    took ``generating_ns``, which a later run with the same cache is spared."""

    hits: int = 0
    misses: int = 0
    generating_ns: int = 0
    spared_ns: int = 0


class Compiled(Struct, frozen=True):
    """What PyTorch's compiler did with the user's functions. ``elapsed_ns`` is how long the process had run.
    ``skipped`` is None in recordings made before it was looked at."""

    breaks: tuple[GraphBreak, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    elapsed_ns: int = 0
    skipped: tuple[SkippedGraph, ...] | None = None


FAILED = "the program failed: "
"""The beginning of the note that names the exception that ended the program."""
PROFKIT_FAILED = "profkit failed: "
"""The beginning of the note that says why a recording was given up."""


REPLACED_ITSELF = "the program put another one into its process (os.exec), which is not recorded"
"""The beginning of the note that says so; the other program follows in brackets."""


KILLED = "the system killed the program"
"""The ``message`` of an `OutOfMemory` that did not come from a request."""


class OutOfMemory(Struct, frozen=True):
    """A request for memory that found no room. ``site`` is the program's line, None if unknown; ``device`` is -1 for
    the host. ``asked_bytes`` were asked for, when ``free_bytes`` were free of the ``total_bytes`` that the process may
    have; 0 means unknown. ``ended`` says that the request ended the program, which otherwise caught it. ``count`` is
    how often a device had no room."""

    device: int = -1
    asked_bytes: int = 0
    free_bytes: int = 0
    total_bytes: int = 0
    site: CallSite | None = None
    message: str = ""
    ended: bool = False
    count: int = 1


class RankIdentity(Struct, frozen=True):
    """Which rank of a launch this process was; -1 and empty for what is unknown.

    ``launch`` is the same for all ranks of one launch and for no other. Adding ``clock_offset_ns`` to this rank's times
    gives rank 0's, to within ``clock_error_ns``.
    """

    rank: int = -1
    world_size: int = -1
    local_rank: int = -1
    host: str = ""
    launch: str = ""
    clock_offset_ns: int | None = None
    clock_error_ns: int | None = None


class Launch(Struct, frozen=True):
    """The content of ``launch.json``: the ``launch`` that the `RankIdentity` of its ranks names, who launched it, and
    its number of ranks, -1 if unknown."""

    launch: str = ""
    launcher: str = ""
    world_size: int = -1


class Remark(Struct, frozen=True):
    """What the program's source says about a line, recorded or not; `profkit.source.remark_kinds` names the kinds. For
    work that is rarely used: its last line, the first line that uses it, and the number of steps between uses, 0 if the
    text does not say. For a layer that is made: a line that calls it. For a hook: ``until`` is its last line and
    ``used_at`` its first. For a call that takes long for what it does: its last line."""

    kind: str
    site: CallSite
    until: int = 0
    used_at: int = 0
    every: int = 0


class Interlude(Struct, frozen=True):
    """Where work passes between the steps of a training, or after the last of them: below the line ``site``, in the
    function of which it had taken ``time_ns`` by the end of the run, as far as looks at the run tell."""

    site: CallSite
    time_ns: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """The content of ``run.json``.

    Times: ``reference_step_ns`` are the steps without a profiler, before and soon after the recorded ones;
    ``later_step_ns`` are those that followed, of which only the times are known; the last of them ended at
    ``timed_until_ns`` since the epoch, 0 if unknown. If an earlier recording was replaced because the steps got longer,
    ``earlier_step_ns`` are those after it, up to ``earlier_until_ns``. The three ``…_step_device_ns`` are,
    for the same steps, how long a GPU took from the end of one to the end of the next in the program's stream: 0 for a
    step that could not be read, empty if none could. ``own_cpu_ns`` and ``children_cpu_ns`` are CPU time from the
    beginning of the recording to the end of the program: its own, and that of the processes it started, which are not
    recorded. ``measured_step_crowded_ns`` is how long the recorded thread was ready to run in each measured step while
    other threads had the CPUs; empty if the system does not say.

    Memory: ``reference_step_faults`` and ``measured_step_faults`` are the page faults in each reference and each
    measured step; ``page_fault_ns`` is the cost of one. ``rates`` are those of the device or the host, if they were
    measured before. ``out_of_memory`` is the last request that found no room, if any.

    Ranks: ``identity`` is None in a program that is not one of several ranks; ``is_light`` says that only collectives
    and steps of this one were recorded.

    Compilers: ``compiled`` is what PyTorch's did with the user's functions, ``generated`` what came out of its caches.

    Watches: ``unwatched`` says what kept some from seeing everything, and what to do. ``flow`` is the data flow of the
    located step. ``padding`` are the inputs of the
    first and the located step that are padded, None if none was looked at. ``denormals`` are the tensors with denormal
    numbers that slowed the CPU down as the recording began, None if none was looked for.

    Steps: ``window`` counts the recordings of one run of the program, from 1; the first names the directories of the
    others, beside its own. ``signals_per_step`` is how often ``step_signal`` comes in a step: an epoch may be one step,
    of many optimizer steps. If ``one_in`` is more than 1, the recorded steps are the long ones, one in so many, which
    take ``share_of_time`` of the time. ``interlude`` says that no steps of the training were recorded, but what passes
    between them. ``is_part`` says that the only recorded step was cut off, ``was_stopped`` that
    profkit ended the program, as asked, once it was recorded. ``was_outdone`` says that the optimizer stepped for the
    first time after the recording, too late for its own steps to be recorded, or would have done so in a program that
    was stopped.
    """

    command: tuple[str, ...] = ()
    python: str | None = None
    torch: str | None = None
    device: str | None = None
    started: str | None = None
    target: str | None = None
    variant: str | None = None
    host: Host | None = None
    rates: Rates | None = None
    flags: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    loaders: tuple[LoaderUse, ...] = ()
    optimizers: tuple[OptimizerUse, ...] = ()
    gradients: GradientUse | None = None
    recomputation: Recomputation | None = None
    flow: DataFlow | None = None
    padding: tuple[PaddedInput, ...] | None = None
    denormals: tuple[DenormalTensors, ...] | None = None
    repeated_calls: tuple[RepeatedCall, ...] | None = None
    unwatched: tuple[Unwatched, ...] = ()
    step_signal: str | None = None
    signals_per_step: int = 1
    one_in: int = 1
    share_of_time: float = 1.0
    interlude: Interlude | None = None
    reference_step_ns: tuple[int, ...] = ()
    later_step_ns: tuple[int, ...] = ()
    reference_step_device_ns: tuple[int, ...] = ()
    later_step_device_ns: tuple[int, ...] = ()
    measured_step_device_ns: tuple[int, ...] = ()
    reference_step_faults: tuple[int, ...] = ()
    measured_step_faults: tuple[int, ...] = ()
    measured_step_crowded_ns: tuple[int, ...] = ()
    timed_until_ns: int = 0
    earlier_step_ns: tuple[int, ...] = ()
    earlier_until_ns: int = 0
    page_fault_ns: int | None = None
    feeding: Feeding | None = None
    compiled: Compiled | None = None
    generated: GeneratedCode | None = None
    remarks: tuple[Remark, ...] = ()
    trace: str | None = None
    window: int = 1
    windows: tuple[str, ...] = ()
    was_stopped: bool = False
    was_outdone: bool = False
    is_part: bool = False
    out_of_memory: OutOfMemory | None = None
    identity: RankIdentity | None = None
    is_light: bool = False
    exit_status: int | None = None
    own_cpu_ns: int = 0
    children_cpu_ns: int = 0
    notes: tuple[str, ...] = ()
    schema: str = "profkit.run/1"


def why_unwatched(run: Run, watch: Watch) -> str:
    """What stopped the watch, or kept it from beginning; empty if nothing did, or in a recording from elsewhere."""
    return next((one.reason for one in run.unwatched if one.watch == watch.value), "")


def unprofiled_steps(run: Run, bound_by: str | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How long the steps without a profiler took, and those after them, in nanoseconds.

    By the GPU's events where these were read, else by the host's clock. For steps that a GPU bounds (``bound_by`` is
    ``device``) the host's clock tells only how long they took to launch, so there are none.
    """
    if any(run.reference_step_device_ns):
        first, later = (
            tuple(ns for ns in steps if ns) for steps in (run.reference_step_device_ns, run.later_step_device_ns)
        )
        return first, later
    return ((), ()) if bound_by == "device" else (run.reference_step_ns, run.later_step_ns)


def default_directory(target: str, root: Path = Path("traces")) -> Path:
    """``traces/<target>/<time>``: a new directory for each run, as TensorBoard's tab needs it."""
    first = directory_of_target(target, root) / time.strftime("%Y%m%d-%H%M%S")
    return next(path for path in numbered(first) if not path.exists())


def directory_of_target(target: str, root: Path = Path("traces")) -> Path:
    """``traces/<target>``."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in Path(target).name) or "run"
    return root / stem.removesuffix(".py")


def numbered(path: Path) -> Iterator[Path]:
    """``path``, ``path-2``, ``path-3`` …, as a program that names its directory is started more than once."""
    return (path if n == 1 else path.with_name(f"{path.name}-{n}") for n in itertools.count(1))


def unused_directory(path: Path) -> Path:
    """The first of the `numbered` directories that holds no run."""
    return next(one for one in numbered(path) if not holds_run(one))


def holds_run(path: Path) -> bool:
    """Whether the directory holds a run, or those of a launch's ranks."""
    return is_run(path) or os.path.lexists(path / LAUNCH_FILE)


def is_run(path: Path) -> bool:
    """Whether the directory itself is a run."""
    return any(os.path.lexists(path / file) for file in (RUN_FILE, DIAGNOSIS_FILE)) or any(
        path.glob("*.pt.trace.json*")
    )


def refuse_other_run(path: Path) -> None:
    """Raises `RunDirectoryError` if ``path`` holds a run."""
    if holds_run(path):
        raise RunDirectoryError(path, "holds another run; name a new directory with --output")


def create_directory(path: Path) -> Path:
    """Make ``path`` ready to hold a run. Raises `RunDirectoryError` if it holds another run or cannot be written."""
    refuse_other_run(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        _try_to_write(path)
    except OSError as error:
        raise RunDirectoryError(path, f"cannot be written: {error.strerror or error}") from error
    check_replaceable(path, (*SMALL_FILES, SNAPSHOT_FILE, *REPORTS))
    if (path / WORKERS_DIRECTORY).is_symlink():
        raise RunDirectoryError(path, f"cannot be written: {WORKERS_DIRECTORY} is a link")
    return path


class _Summary(Struct, frozen=True):
    files: dict[str, str] = {}


class _Diagnosed(Struct, frozen=True):
    run: _Summary = _Summary()


def noted_origin(directory: Path) -> Path | None:
    """Where the recording lies whose reports are in ``directory``; None if they do not say."""
    path = load_file(directory, DIAGNOSIS_FILE, _Diagnosed, _Diagnosed()).run.files.get(RECORDING)
    return Path(path) if path else None


def check_replaceable(directory: Path, names: Sequence[str]) -> None:
    """Raises `RunDirectoryError` if a file of that name could not be written, as it is a link or no file at all. Ask
    before work that takes minutes."""
    try:
        for name in names:
            refuse_links(directory / name)
    except OSError as error:
        raise RunDirectoryError(directory, f"cannot be written: {error.strerror or error}") from error


def what_keeps_from_writing(directory: Path) -> str | None:
    """Why nothing can be written to a directory that was writable before; None if it still can."""
    try:
        _try_to_write(directory)
    except OSError as error:
        return why_not_written(directory, error)
    return None


def _try_to_write(directory: Path) -> None:
    probe = directory / f".profkit-write-test.{os.urandom(8).hex()}"
    try:
        with create(probe) as file:
            file.write(bytes(_LEAST_FREE_BYTES))
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def fixed(path: Path) -> Path:
    """The absolute path, as a program may change its working directory while profkit keeps ``path``; unchanged if the
    working directory is gone."""
    with suppress(OSError):
        return path.absolute()
    return path


def why_not_written(directory: Path, error: OSError) -> str:
    """The cause of a failed write to a run directory: first of all, whether the directory is gone."""
    if not directory.is_dir():
        return "the directory is gone, removed or renamed while the program ran"
    return error.strerror or str(error)


def save(directory: Path, file: str, value: object) -> None:
    """Write one side file of the run as JSON, completely or not at all."""
    write_file(directory, file, msgspec.json.format(msgspec.json.encode(value), indent=1))


def load_run(directory: Path) -> Run:
    """Read ``run.json``; an empty `Run` if there is none."""
    return load_file(directory, RUN_FILE, Run, Run())


def load_launch(directory: Path) -> Launch:
    """Read ``launch.json``; an empty `Launch` if there is none."""
    return load_file(directory, LAUNCH_FILE, Launch, Launch())


def load_callsites(directory: Path) -> tuple[CallSite, ...]:
    return load_file(directory, CALLSITES_FILE, tuple[CallSite, ...], ())


def load_sources(directory: Path) -> Sources:
    return load_file(directory, SOURCES_FILE, dict[str, dict[int, str]], {})


def load_live(directory: Path) -> tuple[LiveSample, ...]:
    return load_file(directory, LIVE_FILE, tuple[LiveSample, ...], ())


def load_samples(directory: Path) -> tuple[LoadSample, ...]:
    return load_file(directory, SAMPLES_FILE, tuple[LoadSample, ...], ())


def load_device_memory(directory: Path) -> tuple[DeviceMemorySample, ...]:
    return load_file(directory, DEVICE_MEMORY_FILE, tuple[DeviceMemorySample, ...], ())


def load_stacks(directory: Path) -> StackSamples:
    return load_file(directory, STACKS_FILE, StackSamples, StackSamples())


def find_trace(directory: Path) -> Path | None:
    """The newest trace in a run directory, None if there is none. Links out of the directory do not count.

    Raises `UnreadableInput` if the directory cannot be listed.
    """
    try:
        present = directory.iterdir() if directory.is_dir() else ()
        traces = [p for p in present if p.name.endswith(TRACE_SUFFIXES) and is_own_file(p, directory)]
    except OSError as error:
        raise UnreadableInput(directory, f"cannot be read: {error.strerror or error}") from error
    return max(traces, key=lambda p: p.stat().st_mtime_ns, default=None)


def find_snapshot(directory: Path) -> Path | None:
    """The memory snapshot in a run directory, None if there is none."""
    path = directory / SNAPSHOT_FILE
    return path if is_own_file(path, directory) else None


def load_file(directory: Path, file: str, kind: type[_Value], missing: _Missing) -> _Value | _Missing:
    """Read one side file of the run, as a value of ``kind``; ``missing`` if there is none. Raises `UnreadableInput`."""
    path = directory / file
    try:
        return decode_own(read_file(path, _MAX_SIDE_FILE_BYTES, directory), kind)
    except FileNotFoundError:
        return missing
    except DAMAGE as error:
        raise UnreadableInput(path, f"is not what profkit wrote: {error}") from error
