"""The program's DataLoaders: which lines make them, which batches are requested, and what their workers do.

Decisions, and why they were made:

- Workers are only promised free CPUs. The process's CPU time, from a batch to the next request, includes the model's
  threads; a worker that takes a CPU from one of them stalls all.
- A DataLoader's fault is reported at the line that makes it, because that line has to change. A property in place of
  the loader's ``dataset`` sees who makes it.
"""
