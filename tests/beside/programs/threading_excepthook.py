"""An exception ends a thread; threading.excepthook is first the default, then the program's."""
import threading

from _tiny import begin, digest, step


def fail():
    raise ValueError("in a thread")


def run():
    thread = threading.Thread(target=fail, name="failing")
    thread.start()
    thread.join()


model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number == 6:
        run()
        threading.excepthook = lambda arguments: print("hook", arguments.exc_type.__name__, arguments.thread.name)
        run()
digest(model)
