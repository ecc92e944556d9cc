"""Gradients that the processes of a launch average, and what their exchanges hold up."""
