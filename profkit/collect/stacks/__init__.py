"""Samples of the program's stacks: which line of Python the program is at, in steps that nothing else watches.

Line marks cost a Python line several times what it takes itself, so nothing of the located step's time can be used.
py-spy reads the stacks from outside, without stopping the program and without its lock. The parent process starts it
where profkit has one; the program asks for it when its measured steps begin (`requests.py`), and says which steps were
plain. The parent reads what py-spy wrote once the program has ended (`reading.py`).

Decisions, and why they were made:

- py-spy, and no thread of our own. Of a loop with fourteen kinds of lines (sums, ``DataFrame.iloc``, ``json.loads``,
  ``copy.deepcopy``, ``random.choice``, ``np.sort``, PIL, ``str(tensor)``, files, sleeping, operators), py-spy's shares
  were within 0.02 of clocks around the lines, and 0.05 on a crowded machine. A thread that reads
  ``sys._current_frames()`` gave pure Python 0 of its 30 %: the thread gets Python's lock where the program lets go of
  it, so all is charged to the next operator or wait. A shorter switch interval would cure that, but programs see it.
- Not ``faulthandler``, whose thread in C reads frames without the lock: the program could crash. Not a timer's signal,
  which interrupts the program's system calls. ``sys.monitoring`` counts events; it does not sample.
- Without stopping the program (``--nonblocking``): a stack that changes while it is read is a wrong sample at worst.
- py-spy starts in the parent. A child of the program's would be seen by its ``os.wait`` and by its signals.
- As many samples as take a hundredth of the machine: py-spy takes 16 ms to begin and 0.25 ms a sample, of another CPU
  if one is free. Five seconds of 80 samples a second give a share of a half to within 0.07. Its intervals vary at
  random, so that no rhythm of the program's matters.
"""
