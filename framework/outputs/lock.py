"""Says that a process works in a run folder, so that no second one continues the same run. No torch."""

from pathlib import Path
from typing import IO

from framework.errors import ConfigError

FILE_NAME = ".running"


class FolderLock:
    """Held from construction to `release`; the system lets go of it when the process dies, however it dies.

    Raises `ConfigError` when another process holds it, or the folder cannot be written to. Where the system has no such
    locks, everybody may.
    """

    def __init__(self, folder: Path, key: str = "--resume") -> None:
        self._path = folder / FILE_NAME
        try:
            self._file: IO[str] = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError.of(key, f"cannot write to '{folder}': {error.strerror}") from error
        if not _lock(self._file):
            self._file.close()
            raise ConfigError.of(key, f"another process is working in '{folder}'", hint="wait for it, or stop it")

    def release(self) -> None:
        """Let go, and leave no file behind."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def _lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
