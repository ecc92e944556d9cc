"""profkit's tab in TensorBoard: the runs below the log directory, their reports, and comparisons of two."""
