"""Kineto traces: the Chrome trace JSON that ``torch.profiler`` exports."""
