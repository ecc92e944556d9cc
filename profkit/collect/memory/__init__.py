"""PyTorch's allocator of the GPU's memory: what it holds, what it does in the located step, where it has no room."""
