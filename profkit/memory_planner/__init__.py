"""What memory a training step would take: its operators run on tensors without data, in a process of its own.

Decisions, and why they were made:

- Storages are logged and added up later. Whether a storage becomes a gradient shows only later, and the same log with
  other sizes gives the effect of 8-bit state or ZeRO. ``MemTracker`` of torch.distributed adds up as it goes.
- Fake tensors are CPU tensors, even for a GPU's plan. Fake GPU tensors need a PyTorch built for that GPU. Differences
  that matter to memory are registered anew (``like_cuda.py``), so a plan is the same everywhere.
- The caching allocator is replayed, not estimated. A block may be a MiB larger than the request, and that counts as
  allocated. The reserved segments were within 4 % of an H100's on three programs.
- Small constants are really computed while a model is made. Constructors read drop rates from ``torch.linspace``.
"""
