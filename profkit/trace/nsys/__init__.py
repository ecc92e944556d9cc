"""Nsight Systems exports (``nsys export --type sqlite``)."""
