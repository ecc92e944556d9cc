"""Functions of os, json, threading and gc are replaced by ones that count while the program trains."""
import gc
import json
import os
import sys
import threading

from _tiny import begin, digest, step

counts = {}


def counting(owner, name):
    original = getattr(owner, name)

    def counted(*arguments, **keywords):
        if threading.current_thread() is threading.main_thread():
            counts[name] = counts.get(name, 0) + 1
        return original(*arguments, **keywords)

    setattr(owner, name, counted)
    return lambda: setattr(owner, name, original)


model, optimizer = begin()
step(model, optimizer)
owners = [(os, "getpid"), (os, "stat"), (os, "listdir"), (json, "dumps"), (gc, "collect"), (gc, "get_objects")]
owners += [(gc, "get_referrers"), (sys, "_getframe"), (sys, "settrace"), (sys, "setprofile"), (os, "times")]
undo = [counting(*pair) for pair in owners]
for number in range(60):
    step(model, optimizer)
    print(number, sorted(counts.items()))
for one in undo:
    one()
digest(model)
