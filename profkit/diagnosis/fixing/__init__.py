"""A finding's change is applied to a copy of the program, and both are run by turns: faster, and the rest the same?

``trees.py`` copies, ``turns.py`` runs, and ``slices.py`` runs several at once by turns. ``results.py`` compares what
two runs computed, with ``trained.py`` what they trained, with ``courses.py`` how they went there, with ``texts.py``
what they print and with ``arrays.py`` the files they wrote. ``proving.py`` decides, and ``patches.py`` makes the diff
and writes it.

Decisions, and why they were made:

- Every run has a fresh copy, always at the same path. A program that finds its own checkpoint goes on from there, and
  one that prints paths prints the same ones.
- The program before the change runs at least three times. What differs between those runs, such as a printed time, is
  no sign of a change; if the parameters differ, nothing can be said, and nothing is offered.
- The interval is Student's over pairs of runs. A bootstrap over three pairs is far too narrow. As it is looked at
  after each few pairs, it is as wide as one of 98 %: else twice as many changes as stated would hold by chance.
- One after the other, two runs of the same program differ by a tenth or more: the machine is now faster, now slower.
  Medians of steps do not help, as whole runs differ. So they run at once by slices, where that is no other thing: a
  busy program without a device. The first pair shows whether it is one, and that the others end the same.
- Tolerances are those of rounding: a change of the algorithm must show. Parameters are compared by how far training
  moved them, or a small learning rate would hide everything. Each parameter is also looked at alone: a scale that
  trains no more moves millions of others by less than rounding does.
- What was steady and no longer is, is never passed over: a file of unknown bytes makes a change not comparable. A
  program that saves its predictions and prints only a count would else hold whatever they become.
- Who prints next to nothing shows itself by how it goes: steps, backward passes, first losses, random numbers drawn.
- Times are no results: a change is meant to alter them. Nor is the loading of libraries, which is half of a short run.
- Changes of numerics come last: others are compared with the numbers as they were.
- No way leads from the copy to the original: absolute links and ``PWD`` are turned too.
- A change stays when it holds, and the next is tried on top. So the diff at the end is what was run.
"""
