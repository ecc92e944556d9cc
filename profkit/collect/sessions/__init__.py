"""Sessions of ``torch.profiler``: what is marked in them, how large they may grow, how they are exported."""
