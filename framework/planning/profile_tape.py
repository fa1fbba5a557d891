"""What is written down while shapes are passed through: kernels, peaks and weights read out of turn. No torch."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from framework.planning.facts import Kernel, Work

FLOP_KINDS = ("matmul", "attention", "conv")
COPIES = ("h2d", "d2h")
WAIT = "wait"
DEFAULT_DTYPE = "bfloat16"  # of a stretch that computes nothing
Row = tuple[str, float, int, str]
"""Kind, FLOP, bytes and dtype of a kernel, or of what else the host launches."""


class Peak(Protocol):
    """What a mark of the memory tells."""

    @property
    def added_bytes(self) -> int: ...


@dataclass(slots=True)
class Sum:
    """Kernels of one stretch of compute."""

    rows: Counter[Row] = field(default_factory=Counter)

    def work(self, activation_bytes: int = 0) -> Work:
        """Return the sum as plain facts."""
        return work_of_rows(self.rows, activation_bytes)


@dataclass(slots=True)
class Tape:
    """Adds every kernel to the stretch that is current.

    `values_read`: since it was last cleared, code has looked at numbers, so what it did may depend on them.
    `guessed` says which numbers nobody knew were taken for something. `layer` is the layer that runs now;
    `read_outside` collects weights of layers that were read while theirs did not run.
    """

    current: Sum = field(default_factory=Sum)
    values_read: bool = False
    guessed: set[str] = field(default_factory=set)
    layer: str | None = None
    owners: dict[str, str] = field(default_factory=dict)  # weight -> its layer
    read_outside: dict[str, None] = field(default_factory=dict)

    def add(self, kind: str, flops: float = 0.0, size_bytes: int = 0, dtype: str = "float32") -> None:
        self.current.rows[kind, flops, size_bytes, dtype] += 1

    @contextmanager
    def repeated(self, count: int) -> Iterator[None]:
        """Count what is added inside as if it were done `count` times."""
        before, self.current = self.current, Sum()
        try:
            yield
        finally:
            for row, own in self.current.rows.items():
                before.rows[row] += own * count
            self.current = before

    def read(self, owner: str) -> None:
        """Note that a kernel reads the weight `owner`."""
        layer = self.owners.get(owner)
        if layer is not None and layer != self.layer:
            self.read_outside[owner] = None


def work_of_rows(rows: Mapping[Row, int], activation_bytes: int) -> Work:
    """Sum up: kernels alike in kind, arithmetic and bytes become one entry, whatever their dtype."""
    kernels: Counter[tuple[str, float, int]] = Counter()
    by_dtype: Counter[str] = Counter()
    copied, copies = dict.fromkeys(COPIES, 0), Counter[str]()
    for (kind, amount, size_bytes, dtype), count in rows.items():
        if kind in COPIES:
            copied[kind] += size_bytes * count
            copies[kind] += count
        elif kind != WAIT:
            kernels[kind, amount, size_bytes] += count
            by_dtype[dtype] += int(amount) * count
    flops = {one: float(sum(row[1] * n for row, n in kernels.items() if row[0] == one)) for one in FLOP_KINDS}
    return Work(
        matmul_flops=flops["matmul"],
        attention_flops=flops["attention"],
        conv_flops=flops["conv"],
        touched_bytes=sum(row[2] * n for row, n in kernels.items()),
        launches=sum(n for row, n in rows.items() if row[0] != WAIT),
        activation_bytes=activation_bytes,
        dtype=max(sorted(by_dtype), key=lambda name: by_dtype[name]) if by_dtype else DEFAULT_DTYPE,
        kernels=tuple(Kernel(*row, count) for row, count in sorted(kernels.items())),
        h2d_bytes=copied["h2d"],
        d2h_bytes=copied["d2h"],
        waits=sum(n for row, n in rows.items() if row[0] == WAIT),
        h2d_copies=copies["h2d"],
    )
