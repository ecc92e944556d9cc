"""What a function of a library is for, by its file and name: saving, importing, waiting for data and so on."""

from __future__ import annotations

from types import CodeType

from profkit.run.whole_run import StackActivity
from profkit.source.code import PROFKIT

_RANKS = (
    StackActivity.OTHER,
    StackActivity.FORWARD,
    StackActivity.BACKWARD,
    StackActivity.UPDATE,
    StackActivity.IMPORTING,
    StackActivity.LOGGING,
    StackActivity.COPYING,
    StackActivity.CHILD,
    StackActivity.NETWORK,
    StackActivity.ASKING,
    StackActivity.DATA,
    StackActivity.LOADING,
    StackActivity.COMPILING,
    StackActivity.SAVING,
    StackActivity.EVALUATING,
    StackActivity.PROFKIT,
)
"""The later says more about a stack that has both: an upload inside a checkpoint belongs to the checkpoint."""
ON_ITS_OWN = frozenset(
    (
        StackActivity.SAVING,
        StackActivity.LOADING,
        StackActivity.COMPILING,
        StackActivity.NETWORK,
        StackActivity.LOGGING,
        StackActivity.COPYING,
        StackActivity.CHILD,
        StackActivity.ASKING,
        StackActivity.EVALUATING,
        StackActivity.PROFKIT,
    )
)
"""Told at the line that asks for it, whatever code of the program it calls, such as a file object's ``write``."""
_ANY = frozenset[str]()
_LIGHTNING = ("lightning/pytorch", "pytorch_lightning")
_FILES: dict[str, tuple[tuple[frozenset[str], StackActivity], ...]] = {
    "torch/serialization.py": (
        (frozenset(("save", "_save", "_legacy_save")), StackActivity.SAVING),
        (frozenset(("load", "_load", "_legacy_load")), StackActivity.LOADING),
    ),
    "torch/distributed/checkpoint/state_dict_saver.py": ((_ANY, StackActivity.SAVING),),
    "torch/distributed/checkpoint/state_dict_loader.py": ((_ANY, StackActivity.LOADING),),
    "safetensors/torch.py": (
        (frozenset(("save_file", "save", "save_model")), StackActivity.SAVING),
        (frozenset(("load_file", "load", "load_model")), StackActivity.LOADING),
    ),
    "torch/_dynamo/convert_frame.py": ((_ANY, StackActivity.COMPILING),),
    "torch/_inductor/compile_fx.py": ((frozenset(("compile_fx", "compile_fx_inner")), StackActivity.COMPILING),),
    "torch/autograd/__init__.py": ((frozenset(("backward", "grad")), StackActivity.BACKWARD),),
    "torch/nn/modules/module.py": ((frozenset(("_call_impl", "_wrapped_call_impl")), StackActivity.FORWARD),),
    "torch/utils/data/dataloader.py": ((frozenset(("__next__", "__iter__")), StackActivity.DATA),),
    "logging/__init__.py": ((_ANY, StackActivity.LOGGING),),
    "tqdm/std.py": ((frozenset(("refresh", "display", "close", "set_postfix")), StackActivity.LOGGING),),
    "socket.py": ((_ANY, StackActivity.NETWORK),),
    "ssl.py": ((_ANY, StackActivity.NETWORK),),
    "http/client.py": ((_ANY, StackActivity.NETWORK),),
    "urllib/request.py": ((_ANY, StackActivity.NETWORK),),
    "ftplib.py": ((_ANY, StackActivity.NETWORK),),
    "fsspec/asyn.py": ((_ANY, StackActivity.NETWORK),),
    "asyncio/streams.py": ((_ANY, StackActivity.NETWORK),),
    "asyncio/selector_events.py": (
        (
            frozenset(("sock_accept", "sock_connect", "sock_recv", "sock_recv_into", "sock_sendall")),
            StackActivity.NETWORK,
        ),
    ),
    "asyncio/subprocess.py": ((frozenset(("communicate", "wait")), StackActivity.CHILD),),
    "shutil.py": (
        (frozenset(("copyfile", "copyfileobj", "copy", "copy2", "copytree", "move")), StackActivity.COPYING),
    ),
    "subprocess.py": ((_ANY, StackActivity.CHILD),),
    "pdb.py": ((_ANY, StackActivity.ASKING),),
    "code.py": ((frozenset(("interact", "raw_input")), StackActivity.ASKING),),
    "transformers/trainer.py": (
        (frozenset(("evaluate", "predict", "evaluation_loop", "prediction_loop")), StackActivity.EVALUATING),
        (frozenset(("_save_checkpoint", "save_model", "save_state")), StackActivity.SAVING),
    ),
    "accelerate/accelerator.py": ((frozenset(("save_state", "save_model")), StackActivity.SAVING),),
    **{
        f"{package}/loops/{name}_loop.py": ((frozenset(("run",)), StackActivity.EVALUATING),)
        for package in _LIGHTNING
        for name in ("evaluation", "prediction")
    },
    **{
        f"{package}/trainer/trainer.py": ((frozenset(("save_checkpoint",)), StackActivity.SAVING),)
        for package in _LIGHTNING
    },
}
"""By the end of the file's name. Each function is named as it has been since PyTorch 2.0, Python 3.10 and safetensors
0.3; libraries that are built on these need no entry but where they evaluate, as only their own text shows that, or do
more for a checkpoint than write it. Names of transformers 4.30 and 5, accelerate 0.20 and Lightning 2."""
_FOLDERS = (
    ("/triton/compiler/", StackActivity.COMPILING),
    ("/torch/optim/", StackActivity.UPDATE),
    ("/torch/utils/tensorboard/", StackActivity.LOGGING),
    ("/tensorboard/summary/", StackActivity.LOGGING),
    ("/wandb/", StackActivity.LOGGING),
    ("/mlflow/", StackActivity.LOGGING),
    ("/urllib3/", StackActivity.NETWORK),
    ("/httpcore/", StackActivity.NETWORK),
    ("/aiohttp/", StackActivity.NETWORK),
    ("/botocore/", StackActivity.NETWORK),
    ("/paramiko/", StackActivity.NETWORK),
)
_IMPORT = "<frozen importlib._bootstrap>"
_CALLING_ON = frozenset(
    ("__torch_function__", "__torch_dispatch__", "note_collection", "pass_by", "_passes", "count_faults")
)
"""Functions of profkit that are innermost while PyTorch does what the program asked for, or once Python has collected
garbage: a look that waits for the end of a collection always meets the callback, which takes a microsecond. The last
three are a recorder's at each step that it does not record."""
_HOOKS = tuple(
    f"{PROFKIT}collect/{place}"
    for place in (
        "boundaries/",
        "loaders/",
        "program/clocks",
        "program/dropped",
        "program/engine",
        "program/guard",
        "recorder/change_watch",
        "whole_run/step_times",
    )
)
"""What PyTorch calls at the ends of steps and for batches. It takes microseconds, but looks meet it often: a thread
that comes out of an operator gives Python's lock away at the next call, which is this one. So a look there belongs to
what PyTorch does for the program. What takes long, and is called from here, lies elsewhere."""
_BASE = f"{PROFKIT}collect/launch/main_module.py"
_LAUNCHES = (f"{PROFKIT}collect/launch/", f"{PROFKIT}__main__", f"{PROFKIT}cli/")
"""Frames of profkit below the program's own."""


def activity_of(code: CodeType) -> StackActivity | None:
    """What the function does for a stack that it is on; None if it tells nothing, as the text of a module that is just
    imported."""
    name = code.co_filename.replace("\\", "/")
    if name == _IMPORT:
        return StackActivity.IMPORTING if code.co_name == "_find_and_load" else None
    if name.startswith(PROFKIT):
        is_own = not name.startswith((*_LAUNCHES, *_HOOKS)) and code.co_name not in _CALLING_ON
        return StackActivity.PROFKIT if is_own else None
    if code.co_name == "<module>":
        return None
    parts = name.rsplit("/", 4)
    for take in range(1, min(4, len(parts)) + 1):
        for functions, activity in _FILES.get("/".join(parts[-take:]), ()):
            if not functions or code.co_name in functions:
                return activity
    found = next((activity for folder, activity in _FOLDERS if folder in name), None)
    return None if found is StackActivity.UPDATE and code.co_name != "step" else found


def is_base(code: CodeType) -> bool:
    """Whether the program runs right above this function: what lies below is how its process came about, such as a fork
    amid `subprocess`."""
    return code.co_filename.replace("\\", "/") == _BASE


def combine(outer: StackActivity, inner: StackActivity) -> StackActivity:
    """What a stack shows that has both. What runs within an import is no longer the import, and asyncio reads what
    another program writes as it reads a socket."""
    if outer is StackActivity.IMPORTING:
        return inner
    if outer is StackActivity.CHILD and inner is StackActivity.NETWORK:
        return outer
    return inner if _RANKS.index(inner) > _RANKS.index(outer) else outer
