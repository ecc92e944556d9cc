"""The program imports itself under its own name, and both copies train."""
import sys

from _tiny import digest, train

model, _ = train()
digest(model)
if __name__ == "__main__":
    import trains_in_main_guard_of_imported as again

    print(again.__name__, again.model is not model, sys.modules["__main__"] is not again)
