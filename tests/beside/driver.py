"""``python driver.py RUN KIND TARGET ARGUMENTS``: a program inside ``with profkit.profile(RUN)``, or bare if RUN is -.

The bare one has what the other has around the program, but for profkit: what differs is profkit's.
"""

import runpy
import sys
from contextlib import nullcontext


def main():
    run, kind, target, *arguments = sys.argv[1:]
    import torch  # noqa: F401  # profile imports it

    if run == "-":
        around = nullcontext()
    else:
        import profkit

        around = profkit.profile(run)
    sys.argv[:] = [target, *arguments]
    del sys.path[0]  # where this file lies
    with around:
        if kind == "module":
            sys.path.insert(0, "")
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif kind == "code":
            exec(compile(target, "<string>", "exec"), {"__name__": "__main__"})
        else:
            if not target.endswith(".pyz"):
                sys.path.insert(0, target.rpartition("/")[0])
            runpy.run_path(target, run_name="__main__")


if __name__ == "__main__":
    main()
