"""What becomes of the program's tensors within a step: which are computed twice, which gradients are thrown away."""
