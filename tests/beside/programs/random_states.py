"""Random states are printed after each step, forked, kept and put back."""
import random

import numpy
import torch
from _tiny import begin, digest_of, step

model, optimizer = begin()
kept = None
for number in range(60):
    with torch.random.fork_rng():
        torch.manual_seed(number)
        torch.rand(3)
    step(model, optimizer)
    print(number, digest_of(torch.get_rng_state()), digest_of(random.getstate()), digest_of(repr(numpy.random.get_state())))
    if number == 10:
        kept = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    if number == 40:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        numpy.random.set_state(kept[2])
print(digest_of(model))
