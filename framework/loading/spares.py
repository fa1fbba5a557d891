"""Weights of an earlier run that the next one takes instead of reading their files again. Imports torch."""

import re
from collections.abc import Collection
from pathlib import Path

from torch import nn

from framework.loading.components import Part
from framework.loading.index import CONFIG_FILES

_SHA256 = re.compile(r"[0-9a-f]{64}")  # what the hub's cache calls a large file


class Spares:
    """Modules that nobody uses, on the host, under the key of their weights."""

    def __init__(self) -> None:
        self._modules: dict[str, nn.Module] = {}

    def put(self, key: str, module: nn.Module) -> None:
        self._modules[key] = module

    def keep_only(self, keys: Collection[str]) -> None:
        """Let go of what nobody is going to take, and of its memory."""
        self._modules = {key: module for key, module in self._modules.items() if key in keys}

    def take(self, key: str | None) -> nn.Module | None:
        """Return the module under `key`, once."""
        return None if key is None else self._modules.pop(key, None)


def weights_key(part: Part) -> str | None:
    """Return text that is equal for parts that load to the same module, or None where a method changes the weights.

    Two repositories of the hub that hold one encoder agree: their caches name large files by their content.
    """
    if not part.is_module or not part.files or part.quantization is not None:
        return None
    configs = [part.folder / name for name in CONFIG_FILES if (part.folder / name).is_file()]
    texts = [f"{file.name}={file.read_text(encoding='utf-8')}" for file in configs]
    cls = f"{part.cls.__module__}.{part.cls.__qualname__}"
    return "|".join([cls, part.dtype or "", *map(_content, part.files), *texts])


def _content(file: Path) -> str:
    """The name of a file's content in the hub's cache, else where the file is, its size and its time."""
    real = file.resolve()
    if _SHA256.fullmatch(real.name):
        return f"{file.name}={real.name}"
    status = real.stat()
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"
