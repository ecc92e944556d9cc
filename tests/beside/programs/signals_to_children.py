"""Children without handlers of their own are ended by SIGTERM, SIGINT and SIGUSR1, and SIGCHLD is counted."""
import os
import signal
import time

from _tiny import begin, digest, step

ended = []
signal.signal(signal.SIGCHLD, lambda number, frame: ended.append(number))
model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (2, 6, 7, 40, 50):
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writing, b"ready")
                while True:
                    time.sleep(10)
            os.read(reading, 5)
            os.close(reading)
            os.close(writing)
            os.kill(child, one)
            print(number, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print(len(ended))
digest(model)
