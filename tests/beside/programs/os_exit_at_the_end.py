"""The process ends by os._exit(0) after all steps."""
import os

from _tiny import digest, train

digest(train()[0])
os._exit(0)
