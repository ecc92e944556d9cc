"""Reading: one reader per format, all producing the same columnar `Trace`."""
