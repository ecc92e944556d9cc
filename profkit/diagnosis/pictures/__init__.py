"""Pictures of the recorded steps: how facts become what reports draw, of bounded size for a trace of any length.

Decisions, and why they were made:

- A page is bounded, not its trace (``from_facts.py``): columns, steps, spans and branches have a maximum.
"""
