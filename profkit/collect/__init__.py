"""A program runs and leaves its recording behind, a run directory. With the planner, only this room imports PyTorch.

Its folders in the order of imports; each may import those before it::

    program      the watched program as Python sees it       machine     what it runs on
    sessions     recordings by torch.profiler                loaders     its DataLoaders
    boundaries   where its steps end                         tensors     what is computed twice or thrown away
    census       what its names keep alive                   recorder    one recording, from start to files
    launch       the process that runs it                    experiments what could be done instead, timed
"""
