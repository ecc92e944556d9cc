"""The environment makes every warning an error, before Python starts."""
# beside: environment PYTHONWARNINGS=error
import sys
import warnings

from _tiny import digest, train

digest(train()[0])
print(sys.warnoptions, len(warnings.filters))
