"""Several ranks of one launch: what each did, which collectives belong together, and what one's lateness costs the
others. Tables in, tables out: no trace is read here.

Decisions, and why they were made:

- The variation of all ranks decides who is late (``chance.py``). Five steps of one rank say little about its own
  variation; those of all ranks say enough. The others' differences keep noise that lasts for several steps, or slightly
  unequal GPUs, from naming a rank. ``tests/benchmarks/bench_late.py`` gives 300 launches 30 % of lognormal noise and
  makes one rank half a step late:

  | | this test | t test per rank |
  |---|--:|--:|
  | finds the late rank, of 4 ranks | 88 % | 50 % |
  | finds the late rank, of 32 ranks | 98 % | 65 % |
  | names a rank although none is late | 1 % | |
  | … if half of the noise stays from step to step | 5 to 7 % | |
  | … if each rank is another 3 % slow | 3 to 8 % | 6 to 21 % |
  | … if two ranks are late by turns in four steps | 15 % | 15 % |
"""
