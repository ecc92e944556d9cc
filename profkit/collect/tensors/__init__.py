"""What becomes of the program's tensors within a step: which are computed twice, which gradients are thrown away.

Decisions, and why they were made:

- A mode calls the function that asked it, not the public name (``askers.py``). The program may have put a function of
  its own there, which would run twice.
- Tensors are followed by a function mode, in two steps. It sits above autograd, so unlike under a dispatch mode no
  operator takes another path. Where a program would notice it (PyTorch's own transformer layers, compiled code),
  nothing is followed.
- A gradient is followed by its tensor's header and version at each optimizer step. Hooks on parameters would tell the
  same but change what PyTorch does.
"""
