"""How the packages around PyTorch reach torch, and what profkit records of a program that imports each first."""
