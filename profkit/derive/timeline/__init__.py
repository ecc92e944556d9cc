"""Intervals of time and events inside events."""
