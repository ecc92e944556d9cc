"""Lines that make text of values, and lines that do not."""

from __future__ import annotations

import pytest

from profkit.source.texts import makes_text


@pytest.mark.parametrize(
    "line",
    [
        'log.debug(f"layer {i} gives {y}")',
        "print(loss)",
        "history.append(str(loss))",
        'log.info("loss %s", loss)',
        'line = "loss %s" % loss',
        'text = "{}".format(loss)',
        'message = rf"{x}\\n"',
        "return repr(self.weight)",
    ],
)
def test_text_is_made(line: str) -> None:
    assert makes_text(line)


@pytest.mark.parametrize(
    "line",
    [
        "y = self.norm(x)",
        "loss = sum(values)",
        'x = table["print"]',
        "self.format = 3",
        "half = x[i] % 2",
        "blueprint(x)",
    ],
)
def test_no_text_is_made(line: str) -> None:
    assert not makes_text(line)
