"""Memory snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`), read without running them."""
