"""The whole run by phases and lines: what it did before, between and after its steps."""
