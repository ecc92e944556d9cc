"""Where a step of the program ends, and what each step is to the recording.

While a program runs, the end of a step is decided here, in this order:

1. A signal: the optimizer's step (``optimizer_steps.py``), a batch of a DataLoader, a backward pass, a call of the
   model, or the program's own ``step()``. An optimizer's step that is recorded ends a little later, outside its range:
   an object among the wrapper's arguments waits until they are dropped.
2. ``signals.py`` makes it a frozen ``StepBoundary`` with signal, thread and time.
3. ``recorded_thread.py``: did it come from the recorded thread?
4. ``choice.py``: does this signal end steps, is it the first of a better one, or is it too late?
5. ``schedule.py``: what the next step is to the recording. After the recorded steps ``cycles.py`` may change it.
6. The recorder (``collect/recorder/recorder.py``) moves to the next step, ``phase_recordings.py`` ends and begins what
   that needs, and an event named by ``core.marks.STEP_MARK`` tells the reader where the step began.
7. Once nothing is recorded any more, ``next_boundary.py`` waits for the step at which a further recording begins.

When a recording is read, ``derive/steps/boundaries.py`` takes the steps from those marks. A trace from elsewhere has
none; that file lists what it takes instead, in order.

Decisions, and why they were made:

- Recording starts at once and is dropped at the first step boundary. A program that never steps, or stops after one
  step, still yields a recording.
- Model calls and batches are steps until the optimizer steps. If it does within a minute of their recording, the
  program is recorded again. The old recording stays until one of the new steps is measured.
- Without an optimizer, backward passes are steps. Programs that update their weights by hand had none: of one whose
  data took long to make, no training step was recorded at all. Tensors get no hook; a descriptor notices the call.
- Gradients by `torch.autograd.grad` end no step of a model: a loop over examples takes one for each. Where calls of
  the model are steps, those between two updates of its weights are one (``hand_updates.py``). Before, each example
  counted as a step of 190 µs, and nobody saw a loop. A sampler, or a model written as a function, has no other sign:
  once the prologue is full, its gradients end steps. Before, all that was known of it had line marks.
- The same holds without gradients, for models in training mode and programs without an optimizer. Each call of an
  evolution's policy was a step of 50 µs, of which the loops over games and members showed nothing. Of eleven programs
  that only infer, all call ``eval()``.
- Steps that a program announces win, however late. A step that calls its model 64 times was once cut into 64.
- What comes once in several optimizer steps turns these into one step. Five of forty steps rarely include the
  evaluation, so later steps are timed, and four long ones at equal distances give the cycle. With three, one noisy
  program in twenty had a cycle by chance; the shorter the distance, the more it takes.
- A cycle that the recorded steps hold is recorded again all the same: the median step showed a rollout as nothing, and
  its lines were marked only if the located step happened to be the long one.
- Waiting for a CPU is left out of the long steps. On a crowded machine it hid the cycle of a program with short steps,
  and took most of the time of one without any.
- Of a cycle with too many events the long step is recorded alone, as a step of its own kind. A second directory for it
  would be one that nobody opens.
- The measured steps leave half of the allowance. A single rollout among them took all, and no cycle could be recorded.
- Steps that become twice as long are recorded again, at most twice. The first games of a learning player are a tenth as
  long as later ones.
- An optimizer that takes over begins the program's next part, which is recorded instead. A teacher trained for five
  steps before its student was recorded half and half. Optimizers that take turns are told apart by thirty steps in a
  row: critics make five to one of the generator.
- A program that trains on its own thread is recorded there. A profiler hears only the thread that starts it. The kind
  that hears all threads writes events that end after the stop into freed memory.
"""
