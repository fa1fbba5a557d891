"""Which accelerators this machine has, asked without loading a driver: nvidia-smi, /sys, sysctl. No torch."""

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

MIB = 1024**2
TIMEOUT_S = 5.0
DRM = Path("/sys/class/drm")
AMD = "0x1002"
AMD_NAMES = {"0x744c": "Radeon RX 7900 XTX"}
APPLE_SHARE = 0.75
"""What macOS lets the GPU have of the memory, unless it is told otherwise."""

Run: TypeAlias = Callable[[Sequence[str]], str | None]
"""Runs a program; returns what it printed, or None where it is not there or fails."""

_FIELDS = ("index", "uuid", "name", "memory.total", "memory.used", "pcie.link.gen.max", "pcie.link.width.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One accelerator. Zero bytes: not known. The link is the best that card and slot can do together."""

    vendor: str
    name: str
    memory_bytes: int
    used_bytes: int = 0
    link_generation: int | None = None
    link_width: int | None = None
    unified: bool = False
    uuid: str = ""

    @property
    def key(self) -> str:
        """What tells this card from others, of the same kind too where the driver numbers them."""
        return f"{self.vendor} {self.name} {self.uuid}".strip()


def read_cards(run: Run | None = None, drm: Path = DRM, visible: str | None = None) -> tuple[Card, ...]:
    """Return the accelerators in the order in which `cuda:N` counts them; empty where there are none.

    `run` and `drm` are for tests; `visible` is `CUDA_VISIBLE_DEVICES` (None: that of this process).
    """
    run = run or run_program
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    return _nvidia(run, visible) or _amd(drm) or _apple(run)


def run_program(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _nvidia(run: Run, visible: str | None) -> tuple[Card, ...]:
    text = run(["nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"])
    rows = [[field.strip() for field in line.split(",")] for line in (text or "").splitlines() if line.strip()]
    rows = [row for row in rows if len(row) == len(_FIELDS)]
    return tuple(_nvidia_card(row) for row in _visible(rows, visible))


def _visible(rows: list[list[str]], visible: str | None) -> list[list[str]]:
    """The cards that CUDA shows, in its order: numbers or the starts of UUIDs; it stops at the first unknown one."""
    if visible is None:
        return rows
    shown: list[list[str]] = []
    for wanted in (part.strip() for part in visible.split(",")):
        found = [row for row in rows if wanted and (wanted == row[0] or row[1].startswith(wanted))]
        if not found:
            break
        shown.append(found[0])
    return shown


def _nvidia_card(row: Sequence[str]) -> Card:
    _, uuid, name, total, used, generation, width = row
    return Card(
        vendor="nvidia",
        name=name,
        memory_bytes=(_number(total) or 0) * MIB,
        used_bytes=(_number(used) or 0) * MIB,
        link_generation=_number(generation),
        link_width=_number(width),
        uuid=uuid,
    )


def _amd(drm: Path) -> tuple[Card, ...]:
    cards = []
    for device in sorted(drm.glob("card[0-9]*/device")):
        if _read(device / "vendor") != AMD:
            continue
        code = _read(device / "device") or ""
        cards.append(
            Card(
                vendor="amd",
                name=_read(device / "product_name") or AMD_NAMES.get(code, f"AMD {code}"),
                memory_bytes=_number(_read(device / "mem_info_vram_total")) or 0,
                used_bytes=_number(_read(device / "mem_info_vram_used")) or 0,
                link_generation=_generation(_read(device / "max_link_speed")),
                link_width=_number(_read(device / "max_link_width")),
            )
        )
    return tuple(card for card in cards if card.memory_bytes >= 2 * 1024 * MIB)  # not the processor's own graphics


def _generation(speed: str | None) -> int | None:
    """`16.0 GT/s PCIe` is generation 4."""
    rates = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
    return rates.get((speed or "").partition(" ")[0])


def _apple(run: Run) -> tuple[Card, ...]:
    if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return ()
    name, memory = run(["sysctl", "-n", "machdep.cpu.brand_string"]), _number(run(["sysctl", "-n", "hw.memsize"]))
    if not name or not memory:
        return ()
    return (Card(vendor="apple", name=name.strip(), memory_bytes=int(APPLE_SHARE * memory), unified=True),)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    """A whole number, or None for `[N/A]` and the like."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() else None
