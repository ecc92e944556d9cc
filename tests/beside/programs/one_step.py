"""A single step."""
from _tiny import digest, train

digest(train(1)[0])
