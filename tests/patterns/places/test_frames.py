"""Whose code a recorded Python frame is."""

from __future__ import annotations

import pytest

from profkit.patterns.places.frames import is_user_frame, parse_frame


@pytest.mark.parametrize(
    ("name", "is_user"),
    [
        ("train.py(12): main", True),
        ("/home/me/model.py(3): forward", True),
        ("profile.py(34): run", True),
        ("tools/queue.py(8): take", True),
        ("/tmp/torchinductor_me/ab/cab3x.py(90): call", False),
        ("<string>(1): <module>", False),
        ("<built-in method relu>", False),
        ("nn.Module: Linear_0", False),
        ("threading.py(323): wait", False),
        ("PIL/Image.py(2256): resize", False),
        ("torchvision/transforms/functional.py(400): resize", False),
        ("torchvision/models/resnet.py(266): forward", True),  # what is run is as good as the user's
        ("data/numpy/store.py(4): read", True),
        ("multiprocessing/queues.py(113): get", False),
        ("torch/nn/modules/module.py(1501): _call_impl", False),
        ("/opt/lib/python3.11/json/decoder.py(332): decode", False),
        ("/opt/site-packages/numpy/core/numeric.py(9): ones", False),
        ("/home/me/profkit/profkit/collect/tensors/recomputation.py(279): __torch_function__", False),
        ("profkit/collect/launch/script.py(73): main", False),
        ("profkit/__main__.py(9): <module>", False),
        ("/home/me/profkit/train.py(12): main", True),  # a program in a folder of that name
        ("/home/me/profkit/scenarios/adam.py(12): pitfall", True),
    ],
)
def test_frames_of_libraries_are_not_user_code(name, is_user):
    assert is_user_frame(name) is is_user


def test_a_frame_has_a_file_the_line_of_its_def_and_a_function():
    assert parse_frame("a/train.py(12): Net.forward") == ("a/train.py", 12, "Net.forward")
    assert parse_frame("<built-in method relu>") is None
