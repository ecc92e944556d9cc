"""Facts about a trace, such as its steps and who waits for whom: each computed once, without opinions.

Decisions, and why they were made:

- Milliseconds per step are a share of the median step, never a mean. Mixing both gave waits longer than the step.
"""
