"""Remedies for failures of PyTorch whose messages do not give one.

The patterns are PyTorch's own words: `torch/csrc/utils/tensor_numpy.cpp`, `torch/csrc/autograd/engine.cpp` and
`saved_variable.cpp`, `torch/cuda/__init__.py`, `c10/cuda/CUDACachingAllocator.cpp`, and ATen's checks of devices.
"""

from __future__ import annotations

import re

_ONE_DEVICE = (
    "Send the model and each batch to one device (`model.to(device)`, `x = x.to(device)`). A tensor that a module "
    "makes itself should be a buffer (`register_buffer`), or be made with `device=x.device`."
)
_NUMPY = (
    "NumPy sees the CPU's memory only: `x.detach().cpu().numpy()` works on every device. It waits for the GPU, so do "
    "it after the loop."
)
_MEMORY = (
    "Use smaller batches and accumulate their gradients, or compute in bfloat16. Recompute activations "
    "(`torch.utils.checkpoint`), and evaluate under `torch.no_grad()`. Keep no loss or output that carries a "
    "graph."
)
_NO_GRAPH = (
    "The loss depends on no trainable parameter: look for `torch.no_grad()`, `.detach()`, `.item()` or "
    "`.numpy()` on the way to it. A tensor made anew from its values, or parameters that are all frozen, have "
    "the same effect."
)
_GRAPH_BEFORE = (
    "Something kept from step to step, such as a hidden state, still belongs to the previous step's graph: detach it "
    "(`h = h.detach()`). Add up two losses of one step before `backward()`."
)
_OVERWRITTEN = (
    "Write a new tensor (`x = x + y` instead of `x += y`), or change a copy (`x.clone()`). "
    "`torch.autograd.set_detect_anomaly(True)` names the forward line whose result was overwritten."
)
_FORKED = "A Dataset used by workers must make its tensors on the CPU; the loop sends the batch to the GPU."
_NO_GPU = (
    'PyTorch finds no GPU here: `device = "cuda" if torch.cuda.is_available() else "cpu"` takes what there is '
    "(see the scenario device-agnostic)."
)
_REMEDIES = (
    (r"can't convert .* device type tensor to numpy", _NUMPY),
    (r"Expected all tensors to be on the same device|is not on the expected device", _ONE_DEVICE),
    (r"Input type \(.*cuda.*\) and (weight|bias) type \(.*\) should be the same", _ONE_DEVICE),
    (r"Input type \(.*\) and (weight|bias) type \(.*cuda.*\) should be the same", _ONE_DEVICE),
    (r"out of memory\. Tried to allocate", _MEMORY),
    (r"element \d+ of tensors does not require grad and does not have a grad_fn", _NO_GRAPH),
    (r"Trying to backward through the graph a second time", _GRAPH_BEFORE),
    (r"modified by an inplace operation", _OVERWRITTEN),
    (r"Cannot re-initialize CUDA in forked subprocess", _FORKED),
    (r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available", _NO_GPU),
)


def remedy_for(failure: str) -> str:
    """What to do about a failure, given as ``TypeError: message``; empty if its message says so, or if it is
    unknown."""
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, failure)), "")
