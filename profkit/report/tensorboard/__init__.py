"""TensorBoard for recorded runs: trace copies that its "PyTorch Profiler" tab reads correctly, and a server."""
