"""The program looks at its main module, its arguments and its path."""
# beside: skip profile: what it prints is the harness's driver
# beside: arguments one --two=3 -- four --output x
import sys

from _tiny import digest, train

print(__name__, __file__, __spec__, __package__, __doc__, __loader__.__class__.__name__, __builtins__)
print(sorted(globals()))
print(sys.argv, sys.orig_argv[-7:], sys.path)
print(sys.modules["__main__"].__dict__ is globals(), sys.executable == sys.orig_argv[0])
model, _ = train()
print(sorted(vars(sys.modules["__main__"])))
digest(model)
