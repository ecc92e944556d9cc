"""Memory snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`), read without running them.

Decisions, and why they were made:

- A memory snapshot is never unpickled (``reader.py``). Its opcodes become columns and a container is a number, so
  nothing can run, nest too deep or multiply. As Python objects 1 GB would take several.
"""
