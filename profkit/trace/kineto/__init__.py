"""Kineto traces: the Chrome trace JSON that ``torch.profiler`` exports.

Decisions, and why they were made:

- An oversized trace is cut in time, not in the file (``time_cutoff.py``). A file lists threads and streams one after
  another, so its first part is no stretch of time.
- Large traces are decoded by forks, merged in file order (``decoding.py``), so the result equals a single process's.
  profkit does not fork if the reader has threads; if anything goes wrong, the reader continues alone.
- Perfetto's copy is the file's text with the findings in front (``insertion.py``). Nothing is decoded again, so it
  costs only unpacking and packing, and keeps what profkit does not know.
"""
