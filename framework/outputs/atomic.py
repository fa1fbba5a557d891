"""Writes a file whole or not at all. No torch."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield an empty temporary file beside `path`; it becomes `path` when the block ends well, else it is removed.

    Readers see the old file or the new one, never half of one, and an interrupt leaves no rest.
    """
    partial = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.part{path.suffix}")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
