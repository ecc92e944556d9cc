"""Spawned children send back objects of classes that the main module defines, and raise its exceptions."""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from _tiny import digest, train


@dataclass
class Score:
    number: int


class Failure(Exception):
    pass


def work(number):
    if number == 2:
        raise Failure(number)
    return Score(number)


if __name__ == "__main__":
    model, _ = train()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        print([executor.submit(work, number).result() for number in range(2)])
        print(repr(executor.submit(work, 2).exception()))
    digest(model)
