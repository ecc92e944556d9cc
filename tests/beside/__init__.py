"""Checks beside the suite: they take longer, or need what the suite does without."""
