"""How long the steps take as the run goes on, in a bounded number of spans, halved each time that they are used up."""

from __future__ import annotations

from profkit.run.whole_run import StepSpan

_FIRST_NS = 100_000_000
"""As long as the first columns of the account."""
_MOST = 600
"""As many as the columns of a run: 600 spans take 40 kB in the file."""


class StepTimes:
    """`note` the end of each step, on the thread of the program; any thread may ask for what was `taken`.

    A step costs less than a microsecond. Times are those of the performance counter, in nanoseconds.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: from here on other steps are counted."""
        self._spans: list[StepSpan] = []
        self._span_ns = _FIRST_NS
        self._steps = self._took_ns = self._slowest_ns = self._ended_ns = 0
        self._fastest_ns = -1

    def note(self, ended_ns: int, took_ns: int, steps: int = 1) -> None:
        """So many steps, each of which took that long, the last until then."""
        self._steps += steps
        self._took_ns += took_ns * steps
        self._ended_ns = ended_ns
        self._slowest_ns = max(self._slowest_ns, took_ns)
        if took_ns < self._fastest_ns or self._fastest_ns < 0:
            self._fastest_ns = took_ns
        if self._took_ns >= self._span_ns:
            self._close()

    def taken(self, origin_ns: int) -> tuple[StepSpan, ...]:
        """The spans so far, the open one too; they count from this time of the performance counter."""
        spans, open_one = list(self._spans), self._open()
        if open_one.steps and (not spans or open_one.until_ns > spans[-1].until_ns):  # else it was just closed
            spans.append(open_one)
        return tuple(_since(span, origin_ns) for span in spans)

    def _open(self) -> StepSpan:
        return StepSpan(self._ended_ns, self._steps, self._took_ns, max(self._fastest_ns, 0), self._slowest_ns)

    def _close(self) -> None:
        self._spans.append(self._open())
        self._steps = self._took_ns = self._slowest_ns = 0
        self._fastest_ns = -1
        if len(self._spans) >= _MOST:
            pairs = zip(self._spans[::2], self._spans[1::2], strict=True)
            self._spans = [_join(first, second) for first, second in pairs]
            self._span_ns *= 2


def _join(first: StepSpan, second: StepSpan) -> StepSpan:
    return StepSpan(
        second.until_ns,
        first.steps + second.steps,
        first.took_ns + second.took_ns,
        min(first.fastest_ns, second.fastest_ns),
        max(first.slowest_ns, second.slowest_ns),
    )


def _since(span: StepSpan, origin_ns: int) -> StepSpan:
    return StepSpan(span.until_ns - origin_ns, span.steps, span.took_ns, span.fastest_ns, span.slowest_ns)
