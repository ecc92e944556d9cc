"""What a hostile file may hold: values of every type, text that means something to a reader of reports, and damage."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

from backports import zstd

CANARY = "kanarie"
"""Part of the planted markup. No report may hold an element, an attribute, a link or a command of this name."""
TEXTS = (
    # markup
    f"<script>{CANARY}()</script>",
    f"</script><script>{CANARY}()</script>",
    f'"><img src=x onerror={CANARY}()>',
    f"' onmouseover={CANARY}() x='",
    f"</style></textarea></title><{CANARY}>",
    f"<!--<{CANARY}>--><![CDATA[<{CANARY}>]]>",
    f"&lt;{CANARY}&gt;&#60;{CANARY}>",
    f"{{{{{CANARY}}}}}{{% {CANARY} %}}",
    f'<svg onload="{CANARY}()"/>',
    f"]]><{CANARY}/>",
    # Markdown, and SARIF's links
    f"[{CANARY}](javascript:{CANARY}) ",
    f"![{CANARY}](http://{CANARY}/)",
    f"](javascript:{CANARY})",
    f"<http://{CANARY}/>",
    f"[{CANARY}]: http://{CANARY}/",
    f"`{CANARY}` ``<{CANARY}>`` ```",
    f"```\n<{CANARY}>\n```",
    f"# {CANARY}",
    f"- {CANARY}",
    f"1. {CANARY}",
    f"> {CANARY}",
    "===",
    "---",
    "| a | b |\n| --- | --- |",
    f"~~~\n{CANARY}",
    f"@{CANARY}",
    # annotations
    f"::error::{CANARY}",
    f"\n::error file=a.py,line=1::{CANARY}",
    f"%0A::stop-commands::{CANARY}",
    f" ::add-mask::{CANARY} ::warning::{CANARY}",
    f"##[error]{CANARY}",
    # terminals
    f"\x1b[31m{CANARY}\x1b[0m",
    f"\x1b]0;{CANARY}\x07",
    f"\x9b31m{CANARY}",
    f"\x1b]8;;http://{CANARY}/\x1b\\",
    f"{CANARY}\rover",
    f"{CANARY}\b\b\b\x7f",
    f"\u202e{CANARY}\u2066\u200f",
    f"\u200b{CANARY}\ufeff\u00ad",
    # lines
    f"a\n{CANARY}",
    f"a\r\n{CANARY}",
    f"a\u2028{CANARY}\u2029\x85\x0b\x0c",
    f"\t{CANARY}\t",
    # letters
    f"\x00{CANARY}\x01",
    f"\ud800{CANARY}",
    f"{CANARY}\udcff",
    "\U0010ffff\ufffe\uffff",
    "漢字" * 30,
    "e\u0301" * 60,
    "x" * 6000,
    "x\n" * 300,
    "",
    " ",
    # places
    f"../../../{CANARY}",
    f"/{CANARY}/../../etc/passwd",
    f"file:///{CANARY}",
    f"javascript:{CANARY}//x.py",
    f"data:text/html,<{CANARY}>.py",
    f"C:\\{CANARY}\\x.py",
    f"\\\\{CANARY}\\share\\x.py",
    f"//{CANARY}/x.py",
    f"x.py?{CANARY}#y",
    f"%{CANARY}%zz.py",
    f"a b<{CANARY}>^`{{|}}.py",
    # other languages
    "NaN",
    "0x10",
    "1e999",
    "null",
    "9" * 4500,
    "__proto__",
)
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, -(10**6), 10**9, 10**15, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 0.001, 1e22, 1e300, 1e308, -1e308, 3.0000000001),
    *map(float, ("nan", "inf", "-inf")),
    *(True, False),
)
OTHERS: tuple[Any, ...] = (
    *(None, "", "7", "main", True, [], [[]], [None], {}, {"a": 1}, {"": {"": {}}}, 1.5, -7),
    *([1, 2, 3], ["a"] * 40, [[1], [[2]]], {"a": [{"b": None}]}),
)
_NESTED = "@nested:"
_NEST = re.compile(rf'"{_NESTED}(\d+):(\d)"')
_DEPTHS = (2, 20, 300, 1100, 20_000)


def value(rng: random.Random) -> Any:
    """A hostile number, text, or a value of another type."""
    return deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, OTHERS))))


def containers(document: Any, most: int = 4000) -> list[Any]:
    """All dictionaries and lists of a document, itself among them."""
    found = [document]
    for each in found:
        inner = each.values() if isinstance(each, dict) else each
        found += [one for one in inner if isinstance(one, (dict, list))]
        if len(found) > most:
            break
    return found


def damage_tree(rng: random.Random, document: Any, times: int = 1) -> None:
    """Change values of a document in place: of another type, huge, gone, doubled, moved, renamed or nested deeply."""
    for _ in range(times):
        found = [one for one in containers(document) if one]
        if not found:
            return
        rng.choice(_CHANGES)(rng, rng.choice(found), found)


def _key_of(rng: random.Random, container: Any) -> Any:
    return rng.choice(list(container)) if isinstance(container, dict) else rng.randrange(len(container))


def _replace(rng: random.Random, container: Any, found: list[Any]) -> None:
    container[_key_of(rng, container)] = value(rng)


def _replace_kind(rng: random.Random, container: Any, found: list[Any]) -> None:
    """The same key in many places, as a version of another writer would change it."""
    key, new = _key_of(rng, container), value(rng)
    for one in found:
        if (isinstance(one, dict) and key in one) or (one is container):
            one[key] = new


def _number(rng: random.Random, container: Any, found: list[Any]) -> None:
    key = _key_of(rng, container)
    if isinstance(container[key], (int, float)):
        container[key] = rng.choice(NUMBERS)


def _text(rng: random.Random, container: Any, found: list[Any]) -> None:
    """Text that keeps what it was, so that it is still taken for it."""
    held = container.items() if isinstance(container, dict) else enumerate(container)
    keys = [key for key, held_value in held if isinstance(held_value, str)]
    if keys:
        key, planted = rng.choice(keys), rng.choice(TEXTS)
        container[key] = rng.choice((planted, container[key] + planted, planted + container[key]))


def _remove(rng: random.Random, container: Any, found: list[Any]) -> None:
    del container[_key_of(rng, container)]


def _repeat(rng: random.Random, container: Any, found: list[Any]) -> None:
    if isinstance(container, list):
        at = rng.randrange(len(container))
        container[at:at] = container[at : at + rng.choice((1, 1, 5))] * rng.choice((1, 2, 30))


def _swap(rng: random.Random, container: Any, found: list[Any]) -> None:
    other = rng.choice(found)
    one, two = _key_of(rng, container), _key_of(rng, other)
    left, right = container[one], other[two]
    if not isinstance(left, (dict, list)) and not isinstance(right, (dict, list)):  # else they could hold themselves
        container[one], other[two] = right, left


def _rename(rng: random.Random, container: Any, found: list[Any]) -> None:
    if isinstance(container, dict):
        old = _key_of(rng, container)
        other = rng.choice(found)
        new = _key_of(rng, other) if isinstance(other, dict) and rng.random() < 0.6 else rng.choice(TEXTS)
        container[new] = container.pop(old)


def _shuffle(rng: random.Random, container: Any, found: list[Any]) -> None:
    if isinstance(container, list):
        rng.shuffle(container)


def _nest(rng: random.Random, container: Any, found: list[Any]) -> None:
    container[_key_of(rng, container)] = f"{_NESTED}{rng.choice(_DEPTHS)}:{rng.randrange(3)}"


def _nested(found: re.Match[str]) -> str:
    opening, closing = (("[", "]"), ('{"a":', "}"), ("[[],", ""))[int(found[2])]
    return f"{opening * int(found[1])}0{closing * int(found[1])}"


_Change = Callable[[random.Random, Any, list[Any]], None]
_CHANGES: tuple[_Change, ...] = (
    *(_replace, _replace, _replace_kind, _number, _number, _number, _text, _text, _text),
    *(_remove, _repeat, _swap, _rename, _shuffle, _nest),
)


def json_of(rng: random.Random, document: Any) -> bytes:
    """The document as JSON, with what JSON forbids or leaves open: NaN, keys twice, lone surrogates, deep nesting."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.8)
    text = _NEST.sub(_nested, text)
    if rng.random() < 0.05 and (commas := [at for at, letter in enumerate(text[:5000]) if letter == ","]):
        at = rng.choice(commas)  # what stands before it, again
        begin = max(text.rfind("{", 0, at), text.rfind(",", 0, at)) + 1
        text = f"{text[:at]},{text[begin:at]}{text[at:]}"
    return text.encode("utf-8", "surrogatepass")


def damage_bytes(rng: random.Random, content: bytes) -> bytes:
    """Bits flipped, bytes gone, doubled, moved, or the end missing."""
    for _ in range(rng.choice((1, 1, 3, 10))):
        at, other = (rng.randrange(max(len(content), 1)) for _ in range(2))
        length = rng.choice((1, 1, 5, 50, 500))
        how = rng.randrange(7)
        if how == 0:
            content = content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
        elif how == 1 and content:
            content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        elif how == 2:
            content = content[:at] + content[at + length :]
        elif how == 3:
            content = content[:at] + content[at : at + length] * rng.choice((2, 3, 50)) + content[at + length :]
        elif how == 4:
            content = content[:at] + content[other : other + length] + content[at:]
        elif how == 5:
            content = content[:at] + rng.choice(TEXTS).encode("utf-8", "surrogatepass") + content[at:]
        else:
            content = content[: max(at, 4)]
    return content


def pack(rng: random.Random, content: bytes) -> bytes:  # noqa: PLR0911  # a way each
    """The content compressed: whole, in members, cut off, damaged, twice, or grown a thousandfold on the way."""
    squeeze: Callable[[bytes], bytes] = rng.choice((lambda data: gzip.compress(data, 1), zstd.compress))
    half = len(content) // 2
    how = rng.randrange(9)
    if how == 0:
        return squeeze(content[:half]) + squeeze(content[half:])
    if how == 1:
        packed = squeeze(content)
        return packed[: rng.randrange(1, len(packed) + 1)]
    if how == 2:
        return damage_bytes(rng, squeeze(content))
    if how == 3:
        return squeeze(squeeze(content))
    if how == 4:
        return squeeze(content) + rng.choice(
            (b"\0" * 512, content[:50], squeeze(b""), b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
        )
    if how == 5 and rng.random() < 0.02:
        return squeeze(content[:1]) + _bomb(rng.randrange(2)) + squeeze(content[1:])
    return squeeze(content)


@cache
def _bomb(kind: int) -> bytes:
    """Sixteen megabytes of spaces in some kilobytes."""
    return (gzip.compress, zstd.compress)[kind](b" " * (16 << 20))
