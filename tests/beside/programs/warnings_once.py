"""A warning is shown once for each place, and the filters are the program's."""
import warnings

from _tiny import begin, digest, step

model, optimizer = begin()
warnings.filterwarnings("once", "each step")
for number in range(60):
    step(model, optimizer)
    warnings.warn("each step", UserWarning, stacklevel=1)
    warnings.warn(f"step {number}" if number % 30 == 0 else "same", UserWarning, stacklevel=1)
print([(kind, text and text.pattern, of.__name__) for kind, text, of, _, _ in warnings.filters])
print(sorted(key[0] for key in __warningregistry__ if isinstance(key, tuple)))
digest(model)
