"""Lays rows out as plain text columns. No torch."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two blanks apart, no trailing blanks."""
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
