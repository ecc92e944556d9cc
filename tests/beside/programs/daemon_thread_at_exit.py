"""A daemon thread runs Python while the interpreter ends."""
import threading

from _tiny import digest, train

begun = threading.Event()


def work():
    number = 0
    while True:
        number += 1
        begun.set()


threading.Thread(target=work, daemon=True).start()
begun.wait()
digest(train(20)[0])
