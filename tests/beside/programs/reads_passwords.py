"""input() and a read of descriptor 0 after training."""
# beside: stdin first\nsecond
import os

from _tiny import digest, train

digest(train()[0])
print(repr(input("name? ")))
print(os.read(0, 100))
