"""How much host memory this process may still take: the machine's figure or a container's limit. No torch."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED_BYTES = 2**62
"""cgroup v1 writes a number near 2**63 where there is no limit."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of host memory; `limit` names what set `available_bytes`: `machine` or the cgroup folder."""

    total_bytes: int
    available_bytes: int
    limit: str = "machine"


@dataclass(frozen=True, slots=True)
class _Files:
    """The names that one cgroup version gives to a memory cap, to its use and to page cache that can be dropped."""

    cap: str
    usage: str
    cache_key: str


_V2 = _Files("memory.max", "memory.current", "inactive_file")
_V1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def read_host_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> HostMemory:
    """Return the smaller of what the machine and the tightest cgroup (v2, else v1) have left.

    Page cache that the kernel drops under pressure counts as free. `proc` and `cgroup` are roots for tests.
    """
    machine = _machine(proc)
    best = machine
    for folder, files in _cgroups(proc, cgroup):
        found = _headroom(folder, files)
        if found is not None and found[1] < best.available_bytes:
            best = HostMemory(min(machine.total_bytes, found[0]), found[1], str(folder))
    return best


def _machine(proc: Path) -> HostMemory:
    figures = _numbers(proc / "meminfo", scale=1024)
    if "MemTotal" in figures:
        total = figures["MemTotal"]
        return HostMemory(total, figures.get("MemAvailable", figures.get("MemFree", total)))
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    # Outside Linux there is no cheap figure of what is available: half of the machine is a careful guess.
    return HostMemory(total, total // 2)


def _cgroups(proc: Path, root: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the folders from the process's own cgroup up to the mount; v2 where it has a memory cap, else v1."""
    paths = _own_paths(proc)
    v2 = list(_chain(root, paths.get("", "/")))
    if any((folder / _V2.cap).is_file() for folder in v2):
        yield from ((folder, _V2) for folder in v2)
    else:
        yield from ((folder, _V1) for folder in _chain(root / "memory", paths.get("memory", "/")))


def _own_paths(proc: Path) -> dict[str, str]:
    """`/proc/self/cgroup` as controller -> path; v2 has the empty controller."""
    paths: dict[str, str] = {}
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _chain(mount: Path, path: str) -> Iterator[Path]:
    """The own folder and its parents up to `mount`.

    Inside a container the mount may already be a parent or the leaf itself, so ever shorter ends of `path` are tried.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    for start in range(len(parts) + 1):
        own = parts[start:]
        if mount.joinpath(*own).is_dir():
            for length in range(len(own), -1, -1):
                yield mount.joinpath(*own[:length])
            return


def _headroom(folder: Path, files: _Files) -> tuple[int, int] | None:
    """Cap and bytes left below it, or None where this folder sets no cap."""
    cap = _number(_text(folder / files.cap))
    usage = _number(_text(folder / files.usage))
    if cap is None or cap >= UNLIMITED_BYTES or usage is None:
        return None
    cache = min(usage, _numbers(folder / "memory.stat").get(files.cache_key, 0))
    return cap, max(0, cap - (usage - cache))


def _numbers(file: Path, scale: int = 1) -> dict[str, int]:
    """Lines of `name value [unit]` or `name: value [unit]`."""
    found: dict[str, int] = {}
    for line in _text(file).splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0]] = int(words[1]) * scale
    return found


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
