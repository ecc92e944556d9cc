"""What profkit says of recordings from an H100, beside what was measured there without a profiler."""
