"""The program is read from standard input."""
# beside: start text
from _tiny import digest, train

digest(train()[0])
