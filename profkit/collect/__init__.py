"""Recording a program: the only package that imports torch.

::

    profiler   the public context manager; nothing below it may reach the program with an error
    recorder   one recording from its first to its last step
    schedule   what each step is (no torch)        steps      where a step ends
    session    one torch.profiler recording        lines      marks that say which line runs what
    detaching  what the profiler leaves behind     device_moments  how far a GPU is at the end of a step
    live       what the user's names keep alive    growth     the line that makes a name grow
    sampler    load of the machine                 environment  versions, devices, flags
    workers    what each worker of a DataLoader does, by its own account
    script     the child process that runs a user's program; launch is its parent's side
    scenario   one variant of a scenario file
"""
