"""Context variables are set in hooks, threads and copies of contexts."""
import contextvars
import threading

from _tiny import begin, digest, step

current = contextvars.ContextVar("current", default="none")


def hook(module, inputs):
    current.set("forward")


model, optimizer = begin()
model.register_forward_pre_hook(hook)
for number in range(60):
    current.set(number)
    context = contextvars.copy_context()
    context.run(step, model, optimizer)
    print(current.get(), context[current], len(contextvars.copy_context()))
    thread = threading.Thread(target=lambda: print(current.get()))
    thread.start()
    thread.join()
digest(model)
