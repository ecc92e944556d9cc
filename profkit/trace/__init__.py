"""Reading: one reader per format, all into the same columnar `Trace`."""
