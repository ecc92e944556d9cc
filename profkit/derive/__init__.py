"""Deriving: each fact about a trace computed once, without opinions."""
