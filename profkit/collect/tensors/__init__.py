"""What becomes of the program's tensors within a step: which are computed twice, which gradients are thrown away, and
how much of a batch is padding.

Decisions, and why they were made:

- A mode calls the function that asked it, not the public name (``askers.py``). The program may have put a function of
  its own there, which would run twice.
- Tensors are followed by a function mode, in two steps. It sits above autograd, so unlike under a dispatch mode no
  operator takes another path. Where a program would notice it (PyTorch's own transformer layers, compiled code),
  nothing is followed.
- A gradient is followed by its tensor's header and version at each optimizer step. Hooks on parameters would tell the
  same but change what PyTorch does.
- Padding is told by the numbers of what a DataLoader gives and of what enters the outermost modules. Masks that a model
  makes inside say the same of the same rows. Only steps whose times are not used are looked at: the first, of which a
  loader's batch is read, and the located one. A tensor on a device may be gone by the end of that step, and a copy
  within it would make the host wait; then only the loader's batch is known. The lengths of two batches say little of
  others, so in timed steps one tensor of each is read, for at most half a percent of the time.
- Denormal numbers are looked for in what is alive between two steps, and in what the located step's calls take. They
  come late in a run, and most in programs that end no step. So the prologue looks again and again. What they cost is
  measured and not assumed: processors differ, and a thread may flush them.
"""
