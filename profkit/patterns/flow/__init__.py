"""What the data flow of the located step shows: calls that do not need each other, layers on copies of rows, and
products whose order costs.

Decisions, and why they were made:

- A trace does not say which tensor an operator takes; `profkit.collect.tensors.flow` does, for one step, by memory.
  Without it these patterns find nothing, or leave the judgement to the source (`profkit.patterns.loops`).
- Products are compared by the larger of their arithmetic and their bytes (``contractions.py``), at a low rate of
  arithmetic: a better order has to win by its sizes, not by the device. An einsum's labels are those into which PyTorch
  turns its factors, as a trace does not hold the equation.
- A call that only adds up results, or keeps them, needs no other one. So chains are counted through products of
  matrices alone, and in a loop without any through what does more than add up (``unbatched.py``).
- A loop without products is told only if no rule for loops on few numbers tells it: those look at what happens to it
  in the measured steps, and their advice is closer (`profkit.rules.unbatched_calls`).
- Rounds that each write to a tensor of their own, or each have a parameter of their own, are no rounds of one body:
  stacking what they go through would copy it (``loops_apart.py``).
"""
