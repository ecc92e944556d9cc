"""A function imports torch late, after other work and other imports."""
import json
import sys


def main():
    from _tiny import digest, train

    print(json.dumps("torch"))
    import torch

    digest(train()[0], torch.ones(1))


before = len(sys.meta_path)
main()
print(len(sys.meta_path) - before)
