"""A recursion without end is caught in the middle of training, and one ends the program."""
# beside: status 1
# beside: mask \[Previous line repeated \d+ more times\]
from _tiny import begin, digest, step


def deeper(number):
    return deeper(number + 1) + 1


model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (3, 6, 30):
        try:
            deeper(0)
        except RecursionError as error:
            print(number, error)
digest(model)
deeper(0)
