"""Every warning is an error, from before torch is imported."""
import warnings

warnings.simplefilter("error")
from _tiny import digest, train

model, _ = train()
try:
    warnings.warn("mine", DeprecationWarning, stacklevel=1)
except DeprecationWarning as error:
    print(error)
print(len(warnings.filters), warnings.filters[0][:3])
digest(model)
