"""Logging is configured by the program, once and with force, and libraries log warnings."""
import logging
import sys

from _tiny import begin, digest, step

print(logging.root.handlers, logging.root.level, sorted(name for name in logging.root.manager.loggerDict if "profkit" in name))
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
logging.captureWarnings(True)
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    logging.getLogger("mine").debug("step %d", number)
logging.basicConfig(stream=sys.stdout, force=True)
logging.warning("the end")
logging.captureWarnings(False)
digest(model)
