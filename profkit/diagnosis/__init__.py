"""From facts and rules to one verdict: the recording's health, its launch, experiments, and comparisons.

Decisions, and why they were made:

- The pipeline lives in ``pipeline.py``, not ``diagnose.py``. Importing a submodule ``profkit.diagnose`` would replace
  the function of that name.
- The verdict is a value, made once (``verdict.py``), so all formats agree. If a recording holds too little to judge by
  (``health.OBSTACLES``), it is "cannot judge", however many rules were silent.
- A lower memory peak counts towards the severity: medium from half of the peak, low from a tenth, besides the time.
- Findings rank by gain, and each says what it adds to those above it (``price_together`` in ``judge.py``). Two fixes
  may free the same time, and a list of shares would promise it twice.
- ``verify`` runs each variant in its own process, with one thread, and stops the other meanwhile. Otherwise one
  variant's turn prepares what the other is timed for.
- ``verify`` waits for a GPU once per block of steps, not at each. Otherwise a fault that is a wait would cost nothing.
"""
