"""Which functions the program calls again with equal arguments, for an equal result.

The watch sees each call of a Python function that a line of the program makes, in the located step and the one after
it. A call repeats an earlier one if its arguments are equal, that of its own object included, and it gives an equal
result or the same object. Nobody may have written into the earlier result meanwhile.

Decisions, and why they were made:

- `sys.setprofile`, and not more lines of the line tracer: it sees how functions of libraries begin and end too, and it
  works in the step after the located one, in which no line is marked.
- Evidence, and no proof from the text. A function of a library may do anything. But an equal result for equal
  arguments, each time, is what keeping it relies on. Functions that return nothing, that return an argument or that are
  given a generator of random numbers, an iterator or a file have another purpose than their result.
- Results that need gradients are left to the watch of PyTorch's calls, which knows about graphs.
- Of each place that calls a function the first 32 calls of a step are looked at, and then every sixteenth. A place
  whose first calls cannot be judged is not looked at again.
"""
