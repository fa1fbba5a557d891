"""`calibrate`: measure the device once, or learn its rates from runs. torch only where something is measured."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from framework.calibration.flags import flags_of
from framework.calibration.measured import Measured, compared, known_rates, measured_of
from framework.calibration.runs import Learned, learn_from
from framework.calibration.store import LEARNED, Calibration, now, read_calibration, write_calibration
from framework.commands.plan_spec import finished
from framework.commands.table import format_table
from framework.compose.arguments import COMPOSING, Flags
from framework.compose.composer import compose_data
from framework.compose.overrides import read_overrides
from framework.errors import ConfigError, OutputError
from framework.planning.machine import AUTO, Machine, card_of, link_gbps, machine_with, resolve_hardware
from framework.platforms import kind_of
from framework.platforms.hardware import HardwareProfile

SUMMARY = "Measure this machine once, in under a minute, or learn its rates from runs; hardware=auto plans with them."
EXAMPLES = (
    "framework calibrate",
    "framework calibrate device=cuda:1 --json",
    "framework calibrate --from-runs outputs",
)
USAGE = "[device=DEVICE] [FLAGS]"
ACCEPTED = COMPOSING | {"json", "from_runs"}
READ = ("device", "hardware")
COLUMNS = ("rate", "assumed", "found")


def main(words: list[str], flags: Flags) -> int:
    """Print assumed and found rates and what is wrong with the machine, and keep the rates of a device that is here."""
    if flags.from_runs:
        return _tell([_of_runs(learned) for learned in _learn(words, flags)], flags)
    _check(words)
    spec = finished(compose_data(words, flags))
    hardware = spec.config.get("hardware")
    kind = kind_of(spec.device)
    if kind != "sim" and hardware is not None and hardware.get("name") != AUTO:
        reason = "the machine at hand is measured"
        raise ConfigError.of("hardware", reason, hint="leave it out, or write device=sim to measure an imitation")
    return _tell([_measure(spec.device if spec.device != AUTO else kind, hardware)], flags)


def _check(words: Sequence[str]) -> None:
    """Refuse what would change nothing."""
    for word in read_overrides(words):
        if word.key.partition(".")[0] not in READ and word.kind not in ("searchpath", "plugins"):
            raise ConfigError.of(word.key, "`calibrate` reads device and hardware only", where=word.where)


def _measure(device: str, hardware: Any) -> dict[str, Any]:
    from framework.calibration.measure import measure
    from framework.paths import cache_root
    from framework.platforms import make_platform

    platform = make_platform(device, hardware)
    if platform.kind == "sim":
        machine, link = resolve_hardware(hardware, device), None
    else:
        card = card_of(device)
        machine, link = machine_with(card), link_gbps(card)
        if card is None and platform.kind != "cpu":
            machine = Machine(machine.profile, (f"no tool names the card of {device}",))
    found = measure(platform, cache_root())
    flags = flags_of(found, machine.profile, link)
    return _row(device, machine.profile, found, flags) | _kept(machine.key, found, flags, "measured")


def _learn(words: Sequence[str], flags: Flags) -> list[Learned]:
    folders = [*flags.from_runs, *words]
    wrong = [word for word in words if "=" in word]
    if wrong:
        raise ConfigError.of(wrong[0], "runs say themselves on which device they ran", hint="give folders only")
    return learn_from([Path(folder) for folder in folders], lambda line: print(line, file=sys.stderr))


def _of_runs(learned: Learned) -> dict[str, Any]:
    """Lay what runs tell over what is known of the device already."""
    before = read_calibration(learned.device) if learned.device else None
    known = {} if before is None else known_rates(before.rates)
    rates = measured_of(known | known_rates(learned.rates))
    row = {
        "device": learned.device or learned.hardware,
        "profile": learned.hardware,
        "rates": {name: _pair(learned.assumed[name], value) for name, value in known_rates(learned.rates).items()},
        "stages": learned.num_stages,
        "error_before": learned.error_before,
        "error_after": learned.error_after,
        "flags": [],
    }
    if not learned.device:
        return row | {"kept": None, "note": "not kept: these runs were planned for a profile by name"}
    return row | _kept(learned.device, rates, before.flags if before else (), LEARNED)


def _row(device: str, profile: HardwareProfile, found: Measured, flags: Sequence[str]) -> dict[str, Any]:
    return {
        "device": device,
        "profile": profile.name,
        "rates": {name: _pair(old, new) for name, old, new in compared(profile, found)},
        "flags": list(flags),
        "seconds": found.seconds,
    }


def _pair(assumed: float, found: float) -> dict[str, float]:
    return {"assumed": assumed, "found": found}


def _kept(key: str, rates: Measured, flags: Sequence[str], how: str) -> dict[str, Any]:
    """Keep the rates of a device that `hardware=auto` can find again; they are told even where that fails."""
    if not key:
        return {"kept": None, "note": "not kept: a simulated device is what its profile says"}
    try:
        path = write_calibration(Calibration(device=key, rates=rates, made=now(), how=how, flags=tuple(flags)))
    except OSError as error:
        return {"kept": None, "note": f"cannot keep the rates of {key}: {error.strerror or error}", "failed": True}
    return {"kept": str(path), "note": f"kept as {path}; hardware=auto plans with it"}


def _tell(rows: Sequence[dict[str, Any]], flags: Flags) -> int:
    """Print all that was found; 4 where any of it could not be kept."""
    _print(rows, flags)
    return OutputError.exit_code if any("failed" in row for row in rows) else 0


def _print(rows: Sequence[dict[str, Any]], flags: Flags) -> None:
    if flags.json:
        print(json.dumps(rows[0] if len(rows) == 1 else list(rows), indent=2))
        return
    for row in rows:
        for line in _lines(row):
            print(line)


def _lines(row: dict[str, Any]) -> Iterator[str]:
    took = f", {row['seconds']:.0f} s" if "seconds" in row else f", {row['stages']} stages of runs"
    yield f"{row['device']} (assumed like {row['profile']}){took}"
    yield ""
    cells = [(name, f"{one['assumed']:.4g}", f"{one['found']:.4g}") for name, one in row["rates"].items()]
    yield format_table(COLUMNS, cells)
    yield ""
    if "error_before" in row:
        before, after = row["error_before"], row["error_after"]
        yield f"forecasts were off by {before:.0%} (median), with these rates they are by {after:.0%}"
    yield from row["flags"]
    yield row["note"]
