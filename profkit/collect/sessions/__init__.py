"""Sessions of ``torch.profiler``: what is marked in them, how large they may grow, how they are exported.

Decisions, and why they were made:

- Lines come from line marks, not from Python stacks. ``with_stack=True`` records the line of the ``def``, costs 1.35x
  and misses ``a * b``; a dispatch mode sees it but makes some kernels take another path, so results may change in the
  last bit. ``sys.settrace`` is on only in one step, the *located* step, and not in the measured ones.
- A function that uses half of all line marks is marked no further. A Python loop over pixels would otherwise leave the
  rest of the step without lines. Once half are spent a comprehension gets a sixteenth, and of
  the last eighth any function: four comprehensions that draw a graph's neighbours had spent them all.
  An event tells when, and operators without their own line take that of an earlier one that came after the same
  operators. In 380 recordings whose marks were cut short, 6 of 10,000 such lines are wrong.
- Growth ends the prologue at once after many lines only. Large results of a few lines come and go, while events stay;
  an inference loop on a busy machine was cut off after two rounds. Imported modules explain 0.1 MB each.
- Only the located step is recorded with shapes. With ``record_shapes=True`` PyTorch keeps every tensor's header until
  the profiler stops, so on a CPU large results get fresh pages: memory-bound steps took up to 25 times as long.
- A recording's size is the heap in use, not resident memory (``held_memory.py``). Names and headers lie between aligned
  results and glibc does not reuse those places, so steps with few operators and large results grew by 50 kB an event
  and were cut off. profkit gives the free memory back.
- A recording is written before the next begins. Kineto converts CUPTI's times with the clock of the latest session;
  exported at the end, every device event of the located step had time 0.
- CUPTI is detached after each recording. Attached, it slows a launch-heavy program by 5 to 25 % for the rest of its
  life. Before CUDA 12.6 detaching crashes programs with CUDA graphs, so there it stays, with a note.
- No recording begins while an event of the last one may still end. PyTorch would write that end into freed memory. So
  ranges that a stop cuts off are kept open, and after a cut-off operator one step passes unrecorded.
- Recording has an allowance for the whole run: 5 s or a tenth of the program's time. It is spent per event, at the
  price that each stop is measured to have, and decides how many steps are measured and how large they may be.
- What is recorded before the first step and replaced by steps is not charged as judged, and later parts of it take at
  most half of what is left. A data set that was filled for twenty seconds had left too little for any step after it.
- A first step that is cut off ends no recording. Its part is kept aside, and a later step is located once four times as
  many events are left. Before, a solver whose first steps followed a long opening was never recorded, however long it
  ran. Up to three are tried so, each for as long as its events take at the pace of the last.
- A recording is counted in the text that was written (``counting.py``). PyTorch's events cost 4 µs each to ask, and
  where nobody asks for them the stop makes no objects of Python: 10 µs an event in the opening, before 17.
- Small operators make a million events a second, tensors grow as fast, and a look every 0.2 s came too late: 1.4
  million events were stopped for 27 s. So the opening is looked at every 0.05 s and a large step every 0.02 s, where
  each call that the watch of calls sees counts for ten events.
- Time bounds a recording because its events cannot be counted while it runs. So waits for a CPU and profkit's watches
  are left out of it, in which no events come. The watches take 480 ms of a step of 14 ms; while they counted, a
  network for tables was cut off twice beside other programs, with a tenth of the events that were left.
- A backward pass with too many events is not entered, because it cannot be interrupted. One through a thousand steps of
  two cells left 290,000 events and took six seconds to write. How many were foreseen counts, not the few before it: by
  their pace a later step was believed to be small.
- A recording starts without Inductor. PyTorch's profiler imports it (800 modules, 1.7 s) to ask whether the program
  compiles; a program that has not imported it does not.
- A GPU step is timed with two events of its own. The host runs ahead (62 ms of work take 1.2 ms to launch), and
  synchronising would change the program.
"""
