"""profkit's own tab in TensorBoard: all runs below the log directory, their reports, and two compared."""
