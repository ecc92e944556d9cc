"""The program is a zip application."""
# beside: start zipapp
from _tiny import digest, train

digest(train()[0])
