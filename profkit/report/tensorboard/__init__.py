"""TensorBoard for recorded runs: copies of traces that its "PyTorch Profiler" tab reads correctly, and a server."""
