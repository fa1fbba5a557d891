"""What the pages hold for a reader to try: files to write and commands to type. No torch."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELLS = ("sh", "console", "")
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(r"^(?:\$ )?((?:[A-Z_]+=\S+ )*)(?:python -m )?framework (\S.*)$")


@dataclass(frozen=True, slots=True)
class Command:
    """One `framework ...` line: the words after the program's name and the variables set before it."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def write_files(page: Path, folder: Path) -> list[Path]:
    """Write every file that the page shows under its name; return their paths."""
    paths = []
    for name, content in _FILE.findall(page.read_text(encoding="utf-8")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        paths.append(path)
    return paths


def shell_commands(page: Path) -> list[Command]:
    """The commands of the page's shell blocks, in order; output below a `$ ` prompt is passed over."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    blocks = [text for language, text in found if language in _SHELLS]
    return [command for block in blocks for line in block.splitlines() if (command := _read(line))]


def all_commands(page: Path) -> list[Command]:
    """As `shell_commands`, and those in the running text."""
    inline = (_read(text) for text in _INLINE.findall(page.read_text(encoding="utf-8")))
    return list(dict.fromkeys([*shell_commands(page), *filter(None, inline)]))


def _read(line: str) -> Command | None:
    match = _COMMAND.match(line.strip())
    if match is None:
        return None
    pairs = (word.partition("=") for word in match[1].split())
    words = tuple(shlex.split(match[2], comments=True))
    return Command(words, tuple((name, value) for name, _, value in pairs))
