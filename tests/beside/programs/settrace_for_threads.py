"""Tracers are set for all threads to come, by threading.settrace and setprofile."""
import threading

from _tiny import digest, train

seen = {"trace": 0, "profile": 0}


def tracer(frame, event, argument):
    if frame.f_code.co_name == "work":
        seen["trace"] += 1
        return tracer
    return None


def profiler(frame, event, argument):
    if frame.f_code.co_name == "work":
        seen["profile"] += 1


def work():
    return sum(range(3))


threading.settrace(tracer)
threading.setprofile(profiler)
thread = threading.Thread(target=work)
thread.start()
thread.join()
model, _ = train()
thread = threading.Thread(target=work)
thread.start()
thread.join()
threading.settrace(None)
threading.setprofile(None)
print(seen)
digest(model)
