"""Evaluations in the program's text: those that keep gradients, and those whose results are rarely used."""
