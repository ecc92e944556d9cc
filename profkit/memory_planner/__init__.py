"""Planning a training step's memory: its operators run on tensors without data, in a process of its own."""
