"""What functions of libraries are for, and what a stack with several of them shows."""

from __future__ import annotations

import inspect
import logging

import pytest
import torch

from profkit.collect.whole_run import watch
from profkit.collect.whole_run.library_frames import activity_of
from profkit.collect.whole_run.watch import _summarise
from profkit.run.whole_run import StackActivity


def code_of(name: str, file: str):
    return compile(f"def {name}(): pass", file, "exec").co_consts[0]


@pytest.mark.parametrize(
    ("file", "name", "expected"),
    [
        ("/x/site-packages/torch/serialization.py", "save", StackActivity.SAVING),
        ("/x/site-packages/torch/serialization.py", "load", StackActivity.LOADING),
        ("/x/site-packages/torch/serialization.py", "location_tag", None),
        ("/x/site-packages/safetensors/torch.py", "save_file", StackActivity.SAVING),
        ("/x/site-packages/torch/distributed/checkpoint/state_dict_saver.py", "_save_state_dict", StackActivity.SAVING),
        ("/x/site-packages/torch/optim/adam.py", "step", StackActivity.UPDATE),
        ("/x/site-packages/torch/optim/lr_scheduler.py", "get_lr", None),
        ("/x/site-packages/torch/_dynamo/convert_frame.py", "_compile", StackActivity.COMPILING),
        ("/x/site-packages/torch/_dynamo/eval_frame.py", "compile_wrapper", None),
        ("/x/site-packages/torch/nn/modules/module.py", "_call_impl", StackActivity.FORWARD),
        ("/x/site-packages/torch/nn/modules/linear.py", "forward", None),
        ("/x/lib/python3.11/socket.py", "readinto", StackActivity.NETWORK),
        ("/x/site-packages/wandb/sdk/wandb_run.py", "log", StackActivity.LOGGING),
        ("/x/site-packages/transformers/trainer.py", "evaluate", StackActivity.EVALUATING),
        ("/x/site-packages/transformers/trainer.py", "training_step", None),
        ("/x/site-packages/transformers/trainer.py", "_save_checkpoint", StackActivity.SAVING),
        ("/x/site-packages/lightning/pytorch/loops/evaluation_loop.py", "run", StackActivity.EVALUATING),
        ("/x/site-packages/pytorch_lightning/loops/prediction_loop.py", "run", StackActivity.EVALUATING),
        ("/x/site-packages/lightning/pytorch/loops/fit_loop.py", "run", None),
        ("/home/me/trainer.py", "evaluate", None),
        ("<frozen importlib._bootstrap>", "_find_and_load", StackActivity.IMPORTING),
        ("<frozen importlib._bootstrap>", "_call_with_frames_removed", None),
        (watch.__file__, "finish", StackActivity.PROFKIT),
        (watch.__file__.replace("whole_run/watch", "launch/script"), "main", None),
        (watch.__file__.replace("whole_run/watch", "boundaries/optimizer_steps"), "_after_step", None),
        (watch.__file__.replace("whole_run/watch", "recorder/recorder"), "pass_by", None),
        (watch.__file__.replace("whole_run/watch", "recorder/recorder"), "finish", StackActivity.PROFKIT),
        (watch.__file__.replace("whole_run/watch", "program/living"), "living", StackActivity.PROFKIT),
        (watch.__file__.replace("whole_run/watch", "recorder/archive"), "save", StackActivity.PROFKIT),
        ("/x/lib/python3.11/asyncio/streams.py", "drain", StackActivity.NETWORK),
        ("/x/lib/python3.11/asyncio/selector_events.py", "sock_sendall", StackActivity.NETWORK),
        ("/x/lib/python3.11/asyncio/selector_events.py", "_process_events", None),
        ("/x/lib/python3.11/asyncio/subprocess.py", "communicate", StackActivity.CHILD),
        ("/home/me/train.py", "save", None),
    ],
)
def test_a_function_of_a_library_is_known_by_its_file_and_name(file, name, expected):
    assert activity_of(code_of(name, file)) is expected


def test_the_text_of_a_module_that_is_imported_tells_nothing():
    module = compile("x = 1", "/x/site-packages/torch/_dynamo/convert_frame.py", "exec")
    assert activity_of(module) is None


def test_the_names_exist_in_this_pytorch():
    """If one moves, its phase would silently become another."""
    functions = (
        (torch.save, StackActivity.SAVING),
        (torch.load, StackActivity.LOADING),
        (torch.autograd.backward, StackActivity.BACKWARD),
        (torch.nn.Module._call_impl, StackActivity.FORWARD),
        (torch.optim.Adam.step, StackActivity.UPDATE),
        (torch.utils.data.dataloader._BaseDataLoaderIter.__next__, StackActivity.DATA),
        (logging.Logger.info, StackActivity.LOGGING),
    )
    for function, expected in functions:
        assert activity_of(inspect.unwrap(function).__code__) is expected, function


MAIN, TRAIN, MODEL = ((code_of(name, "/me/train.py"), line) for name, line in (("main", 1), ("train", 2), ("model", 3)))


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([MAIN, TRAIN], (StackActivity.OTHER, (MAIN, TRAIN))),
        ([MAIN, StackActivity.FORWARD, MODEL], (StackActivity.FORWARD, (MAIN, MODEL))),
        ([MAIN, StackActivity.SAVING, StackActivity.NETWORK], (StackActivity.SAVING, (MAIN,))),
        ([MAIN, StackActivity.SAVING, TRAIN], (StackActivity.SAVING, (MAIN,))),
        ([MAIN, StackActivity.DATA, TRAIN], (StackActivity.DATA, (MAIN, TRAIN))),
        ([StackActivity.IMPORTING, MAIN, StackActivity.BACKWARD], (StackActivity.BACKWARD, (MAIN,))),
        ([MAIN, StackActivity.FORWARD, MODEL, StackActivity.IMPORTING], (StackActivity.IMPORTING, (MAIN, MODEL))),
        ([MAIN, StackActivity.COMPILING, StackActivity.IMPORTING], (StackActivity.COMPILING, (MAIN,))),
        ([MAIN, StackActivity.UPDATE, StackActivity.PROFKIT], (StackActivity.PROFKIT, (MAIN,))),
        ([StackActivity.NETWORK], (StackActivity.NETWORK, ())),
        ([MAIN, StackActivity.CHILD, StackActivity.NETWORK], (StackActivity.CHILD, (MAIN,))),
        ([MAIN, StackActivity.NETWORK, StackActivity.CHILD], (StackActivity.NETWORK, (MAIN,))),
        ([], (StackActivity.OTHER, ())),
        (
            [(MAIN[0], line) for line in range(12)],
            (StackActivity.OTHER, (*((MAIN[0], n) for n in range(7)), (MAIN[0], 11))),
        ),
    ],
)
def test_a_stack_shows_one_activity_and_the_programs_lines(stack, expected):
    assert _summarise(stack) == expected
