"""sys.gettrace, getprofile, excepthooks and the like as the program finds them."""
import gc
import sys
import threading

import torch
from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 4, 6, 8, 20, 59):
        print(number, sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
        print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.displayhook is sys.__displayhook__)
        print(threading.excepthook is threading.__excepthook__, sys.getswitchinterval(), sys.getrecursionlimit())
        print(sys.getdlopenflags(), gc.get_threshold(), gc.isenabled(), [type(one).__name__ for one in gc.callbacks])
        print(torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype(), torch.is_inference_mode_enabled())
        print(torch.autograd.profiler._is_profiler_enabled, torch._C._get_graph_executor_optimize())
        print(getattr(sys, "last_value", None), getattr(sys, "last_traceback", None), sys.exc_info())
digest(model)
