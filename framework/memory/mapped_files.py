"""Which tensors still lie in a mapped file: the kernel's own list of mappings tells. Imports torch for types only."""

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

OWN_MAPS = Path("/proc/self/maps")
SPECIAL = ("/dev/", "/memfd:", "/SYSV")
"""Mappings with a path that are no files: shared and page-locked memory."""


class MappedFiles:
    """Call it with a tensor on the host; `refresh` reads the list again after files were opened.

    Safetensors hands out views of the mapped file, read-only on some systems. Where there is no list (outside Linux)
    every tensor counts as mapped, so that nothing is written to a file's pages.
    """

    def __init__(self, maps: Path = OWN_MAPS) -> None:
        self._maps = maps
        self._starts: list[int] | None = None
        self._ends: list[int] = []

    @property
    def known(self) -> bool:
        """Whether there is a list."""
        return self._starts is not None

    def refresh(self) -> None:
        """Read the mappings of this process as they are now."""
        try:
            text = self._maps.read_text(encoding="utf-8", errors="replace")
        except OSError:
            self._starts = None
            return
        spans = sorted(_span(line) for line in text.splitlines() if _is_file(line))
        self._starts, self._ends = [start for start, _ in spans], [end for _, end in spans]

    def __call__(self, tensor: "Tensor") -> bool:
        if tensor.device.type != "cpu" or tensor.numel() == 0:
            return False
        if self._starts is None:
            return True
        address = tensor.data_ptr()
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ends[index]


def _is_file(line: str) -> bool:
    """Lines are `start-end rights offset device inode path`."""
    path = line.split(maxsplit=5)[5:]
    return bool(path) and path[0].startswith("/") and not path[0].startswith(SPECIAL)


def _span(line: str) -> tuple[int, int]:
    start, _, end = line.partition(" ")[0].partition("-")
    return int(start, 16), int(end, 16)
