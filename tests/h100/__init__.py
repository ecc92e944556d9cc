"""What profkit says about recordings from an H100, compared with what was measured there without a profiler."""
