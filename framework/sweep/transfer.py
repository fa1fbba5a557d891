"""Files of a job on their way between two machines. No torch."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from framework.errors import OutputError

CHUNK_BYTES = 1 << 24
MAX_PARCEL_BYTES = 1 << 31
Parcel = Sequence[tuple[str, bytes]]
"""Names inside a folder, with `/`, and contents."""


def list_files(folder: Path) -> list[tuple[str, int]]:
    """Return names and sizes of the plain files below `folder`."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    return [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in found]


def pack_files(folder: Path | None) -> Parcel:
    """Return all of `folder`; nothing where that is None or too much for one message."""
    if folder is None:
        return ()
    listed = list_files(folder)
    if sum(size for _, size in listed) > MAX_PARCEL_BYTES:
        return ()
    return [(name, (folder / name).read_bytes()) for name, _ in listed]


def unpack_files(folder: Path, parcel: Parcel) -> None:
    """Write a parcel below `folder`. Raises `OutputError` for names that lead out of it."""
    for name, content in parcel:
        path = inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def fetch_files(folder: Path, listed: Iterable[tuple[str, int]], read: Callable[[str, int], bytes]) -> None:
    """Write the listed files below `folder`; `read` gives a chunk of a file from a byte on. Raises `OutputError`."""
    for name, size in listed:
        path = inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while file.tell() < size:
                chunk = read(name, file.tell())
                if not chunk:
                    raise OutputError(f"'{name}' ended after {file.tell()} of {size} bytes")
                file.write(chunk)


def inside(folder: Path, name: str) -> Path:
    """Return the path of `name` in `folder`. Raises `OutputError` for a name that leads out of it."""
    path = folder / name
    if not name or (path.is_absolute() and not path.is_relative_to(folder)) or ".." in Path(name).parts:
        raise OutputError(f"'{name}' is no name of a file of a job")
    return path
