"""A thread goes on training after the last line of the program."""
import threading

from _tiny import begin, digest, step

done = threading.Event()


def work():
    model, optimizer = begin()
    done.wait()
    for _ in range(60):
        step(model, optimizer)
    digest(model)


threading.Thread(target=work).start()
print("main ends")
done.set()
