"""One run on a machine with a GPU: all that profkit's tests cannot see on a CPU, in a few minutes, and brought back.

``python -m tests.gpu`` needs a checkout and PyTorch. It goes through parts (``--list``), the most valuable first. Each
has a share of the time; what it has not done by then goes on after the others, until the time is over. A part that
fails does not end the others. Each result is written as it comes, so nothing is lost if the run is ended.

``--output`` holds at most seven files of less than 16 MB: ``results.json``, ``results.md``, ``log.txt``, and archives
with the recordings. ``python -m tests.gpu.bring FOLDER`` brings those of scenarios into ``traces/recorded``.

**What a bare machine lacks** travels as wheels, here for Python 3.12 on Linux::

    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \\
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \\
        -d wheels msgspec isal backports.zstd platformdirs

and there, in the checkout::

    python3 -m pip install --no-index --no-deps --target /tmp/site wheels/*.whl
    PYTHONPATH=/tmp/site python3 -m tests.gpu --minutes 8 --output results

``--device cpu`` tries everything without a GPU. It says what it could not do.

Its files, in the order of imports: ``rows`` (a result), ``results`` (where they are written), ``archives``,
``nursery`` (processes that begin with PyTorch imported), ``children`` (processes that work at request), ``machine``;
then the parts, ``schedule``, and ``__main__``. A part is a function that yields rows. It works only while its next row
is waited for, so that no part disturbs another.
"""
