"""Short writing for many tensor names that differ in layer numbers only: `blocks.{0..39}.norm.weight`. No torch.

Lines one after the other whose names agree up to the same braces are one run: all of them for the first number, then
all for the next. So the order of a model's tensors survives.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

Line: TypeAlias = tuple[str, str]
"""A name, possibly with braces, and what is said of it (`5120,5120` or `5120,5120 int64`)."""

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expand(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield every name once, without braces."""
    position = 0
    while position < len(lines):
        name, text = lines[position]
        found = _RANGE.search(name)
        if found is None:
            yield name, text
            position += 1
            continue
        head = name[: found.end()]
        end = position
        while end < len(lines) and lines[end][0].startswith(head):
            end += 1
        run = [(line[0][len(head) :], line[1]) for line in lines[position:end]]
        for number in range(int(found[1]), int(found[2]) + 1):
            start = f"{name[: found.start()]}{number}"
            yield from expand([(start + rest, said) for rest, said in run])
        position = end


def compress(lines: Iterable[Line]) -> list[Line]:
    """Return the shortest run-length writing of `lines`; `expand` gives them back in their order."""
    return _compress("", list(lines))


def _compress(prefix: str, lines: list[Line]) -> list[Line]:
    """`lines` are names below `prefix`; runs of numbered children with equal contents become one."""
    found: list[Line] = []
    position = 0
    while position < len(lines):
        key, dot, _ = lines[position][0].partition(".")
        if not dot:
            found.append((prefix + key, lines[position][1]))
            position += 1
            continue
        body, end = _child(lines, position, key)
        last = int(key) if key.isdecimal() else -1
        while key.isdecimal():
            following, after = _child(lines, end, str(last + 1))
            if not following or following != body:
                break
            last, end = last + 1, after
        name = key if last <= int(key if key.isdecimal() else -1) else f"{{{key}..{last}}}"
        found += _compress(f"{prefix}{name}.", body)
        position = end
    return found


def _child(lines: list[Line], start: int, key: str) -> tuple[list[Line], int]:
    """The lines from `start` on that lie below `key`, without it, and where they end."""
    head = f"{key}."
    end = start
    while end < len(lines) and lines[end][0].startswith(head):
        end += 1
    return [(name[len(head) :], text) for name, text in lines[start:end]], end
