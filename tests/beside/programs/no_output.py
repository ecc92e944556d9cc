"""Standard output is closed from the start; the program writes to a file that takes its number."""
# beside: start no-stdout
import sys

from _tiny import digest_of, train

with open("result.txt", "w") as file:
    file.write(f"{sys.stdout} {digest_of(train()[0])}\n")
