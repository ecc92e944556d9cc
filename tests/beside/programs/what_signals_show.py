"""The handlers of all signals, the mask and the timers as the program finds them."""
import signal

from _tiny import begin, digest, step

model, optimizer = begin()
for number in range(60):
    step(model, optimizer)
    if number in (0, 6, 59):
        for one in sorted(signal.valid_signals()):
            print(number, one, getattr(signal.getsignal(one), "__name__", signal.getsignal(one)))
        print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), signal.getitimer(signal.ITIMER_PROF))
digest(model)
