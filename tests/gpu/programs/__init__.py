"""What the parts run in processes of their own. Only these import PyTorch."""
