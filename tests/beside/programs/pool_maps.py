"""A pool of forks computes between steps."""
import multiprocessing
import os

from _tiny import begin, digest, step


def square(number):
    return number * number, os.getpid() != parent


parent = os.getpid()
model, optimizer = begin()
with multiprocessing.get_context("fork").Pool(2) as pool:
    for number in range(60):
        step(model, optimizer)
        if number % 10 == 0:
            print(pool.map(square, range(4)))
digest(model)
