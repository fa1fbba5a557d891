"""Which devices a sweep has, counted without torch, and what a worker process is shown of them. No torch.

Numbers are relative to what this process sees: where CUDA_VISIBLE_DEVICES is `3,5`, device 1 is the machine's 5. A
worker sees its own device alone, as number 0.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from framework.errors import ConfigError
from framework.platforms.visible import SIM_VARIABLE

CUDA_VARIABLE, HIP_VARIABLE = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
KEY = "sweep.devices"
HINT = "write auto, 0,1, sim:4 or none:2"
_COUNTED = re.compile(r"(sim|none):(\d+)")


@dataclass(frozen=True, slots=True)
class Device:
    """One device, or for `none` one place on the processor. `index` is what this process calls it.

    `environment` shows a worker this device alone; `label` is what tables say. In a cluster `node` is where it is,
    `card` the profile of its card where that is known, and `resources` are what the node calls it.
    """

    kind: str  # cuda, sim or none
    index: int
    label: str
    environment: Mapping[str, str]
    node: str | None = None
    card: str | None = None
    resources: tuple[str, ...] = ()
    count: int = 1  # of devices that a job has there


def find_devices(
    wanted: str | int | Sequence[int | str], environ: Mapping[str, str] | None = None, dev: Path = Path("/dev")
) -> list[Device]:
    """Return the devices that `wanted` names. Raises `ConfigError` for one that is not there, and for none at all."""
    own = os.environ if environ is None else environ
    text = ",".join(str(part) for part in wanted) if isinstance(wanted, list | tuple) else str(wanted).strip()
    found = counted(text)
    if found is not None:
        kind, count = found
        return _simulated(count, own) if kind == "sim" else [place_on_processor(index) for index in range(count)]
    seen = visible_gpus(own, dev)
    if text == "auto":
        return [_gpu(index, token, own) for index, token in enumerate(seen)] or [place_on_processor(0)]
    if isinstance(wanted, int):
        numbers = list(range(wanted))
    else:
        parts = [part.strip() for part in text.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise ConfigError.of(KEY, f"'{text}' names no devices", hint=HINT)
        numbers = list(dict.fromkeys(int(part) for part in parts))
    missing = [number for number in numbers if number >= len(seen)]
    if missing or not numbers:
        reason = f"there is no device {missing[0]}" if missing else "no device is left"
        has = f"{len(seen)} of them, counted from 0" if seen else "none"
        raise ConfigError.of(KEY, f"{reason}: this process sees {has}", hint=HINT)
    return [_gpu(number, seen[number], own) for number in numbers]


def counted(text: str) -> tuple[str, int] | None:
    """Return kind and number of `sim:4` or `none:2`, None for any other text. Raises `ConfigError`."""
    match = _COUNTED.fullmatch(text)
    if match is None:
        return None
    if not 1 <= int(match[2]) <= 1024:
        raise ConfigError.of(KEY, f"'{text}' is no sensible number of devices", hint=HINT)
    return match[1], int(match[2])


def visible_gpus(environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """Return the tokens of the GPUs this process sees, in order: numbers, or what the variable calls them."""
    for variable in (CUDA_VARIABLE, HIP_VARIABLE):
        if variable in environ:
            return _listed(environ[variable])
    count = _count_by_tool() or len([path for path in dev.glob("nvidia*") if path.name[6:].isdecimal()])
    return [str(index) for index in range(count)]


def _listed(text: str) -> list[str]:
    """The entries of a visibility variable; as the driver does, everything from the first bad one on is left out."""
    tokens: list[str] = []
    for token in (part.strip() for part in text.split(",")):
        if not token or token.startswith("-"):
            break
        tokens.append(token)
    return tokens


def _count_by_tool() -> int:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0


def _gpu(index: int, token: str, environ: Mapping[str, str]) -> Device:
    variable = HIP_VARIABLE if HIP_VARIABLE in environ and CUDA_VARIABLE not in environ else CUDA_VARIABLE
    return Device("cuda", index, f"cuda:{token}", {variable: token})


def _simulated(count: int, environ: Mapping[str, str]) -> list[Device]:
    """Simulated devices; those that this process sees where the variable says so, else as many as are asked for."""
    seen = _listed(environ[SIM_VARIABLE]) if SIM_VARIABLE in environ else [str(index) for index in range(count)]
    if count > len(seen):
        raise ConfigError.of(KEY, f"there is no device {len(seen)}: {SIM_VARIABLE} shows {len(seen)} of them")
    return [simulated(index, token) for index, token in enumerate(seen[:count])]


def simulated(index: int, token: str | None = None) -> Device:
    """A simulated device; `token` is its number on the machine."""
    number = str(index) if token is None else token
    return Device("sim", index, f"sim:{number}", {SIM_VARIABLE: number})


def place_on_processor(index: int) -> Device:
    """One place without a device of its own."""
    return Device("none", index, f"none:{index}", {CUDA_VARIABLE: "", HIP_VARIABLE: ""})
