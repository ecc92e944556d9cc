"""The program closes its standard output, and its descriptor, in the middle."""
import os
import sys

from _tiny import begin, digest_of, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 5:
        print("closing", flush=True)
        sys.stdout.close()
        sys.stdout = open(os.devnull, "w")
with open("result.txt", "w") as file:
    file.write(digest_of(model))
