"""A program runs and leaves its recording behind, a run directory. With the planner, only this room imports PyTorch.

Its folders in the order of imports; each may import those before it::

    program      the watched program as Python sees it       machine     what it runs on
    sessions     recordings by torch.profiler                loaders     its DataLoaders
    boundaries   where its steps end                         tensors     what is computed twice, thrown away, or padding
    functions    what is called again for the same           census      what its names keep alive
    recorder     one recording, from start to files          whole_run   what the run as a whole is spent on
    launch       the process that runs it                    experiments what could be done instead, timed

Something new to record touches few files of profkit: what reads it, in the folder of its subject; its field in
``run/directory.py``; the line of ``recorder/archive.py`` that saves it; and who uses it. What works during the steps is
made in ``recorder/recorder.py`` and begun and ended in ``recorder/phase_recordings.py``: six. A setting of the program
is a key of ``read_flags`` in ``machine/environment.py``, and ``compare`` tells where it differs: two.
"""
