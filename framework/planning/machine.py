"""The machine at hand as a hardware profile: shipped figures of its card, sizes of this machine. No torch.

Reads `nvidia-smi`, `/sys`, `/proc` and the container's limits; peak rates are never measured here (`calibrate` does).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from framework.calibration.measured import laid_over
from framework.calibration.store import Calibration, read_calibration, unread_note
from framework.errors import ConfigError
from framework.memory.host_budget import HostMemory, read_host_memory
from framework.paths import CONF
from framework.planning.cards import Card, read_cards
from framework.platforms.hardware import DEFAULT_SIM_HARDWARE, GIB, HardwareProfile, load_hardware

AUTO = "auto"
CPU = "cpu"
CONTEXT_GIB = 0.5  # what the driver's context will take beside what others hold already
WIRE_SHARE = 0.78  # of a link's rate that large pinned copies reach
LANE_GBPS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.877}
BUSY_GIB = 1.5  # more than a desktop takes
_NOISE_WORDS = "nvidia geforce amd radeon intel graphics gpu tm r sxm sxm4 sxm5 pcie hbm2 hbm2e hbm3 hbm3e"
_NOISE = frozenset(_NOISE_WORDS.split())


@dataclass(frozen=True, slots=True)
class Machine:
    """A profile, and what is to be said about how it came to be, one line each.

    `key` is the name under which rates of this device are kept; empty for a machine that is not at hand.
    """

    profile: HardwareProfile
    notes: tuple[str, ...] = ()
    key: str = ""


def resolve_hardware(hardware: Mapping[str, Any] | None, device: str = AUTO) -> Machine:
    """Return the machine that a composed `hardware` group means for `device`.

    A named profile is taken as it is. `auto` (or None) reads the machine at hand, with the rates that `calibrate` has
    found for it; for a simulated device it means the RTX 4090. Raises `ConfigError` for keys that no profile has.
    """
    if hardware is not None and hardware.get("name") != AUTO:
        return Machine(HardwareProfile.from_mapping(hardware))
    own = {key: value for key, value in (hardware or {}).items() if key != "name" and value is not None}
    if device.partition(":")[0] == "sim":
        found = Machine(load_hardware(DEFAULT_SIM_HARDWARE))
    else:
        card = card_of(device)
        kept = read_calibration(key_of(card))
        found, unread = machine_with(card, kept), unread_note(key_of(card)) if kept is None else ""
        found = replace(found, notes=(*found.notes, unread)) if unread else found
    return replace(found, profile=_with_own(found.profile, own)) if own else found


def machine_with(card: Card | None, known: Calibration | None = None) -> Machine:
    """Return the profile of this machine with `card`; see `machine_of`."""
    return machine_of(card, read_host_memory(), known)


def machine_of(card: Card | None, host: HostMemory, known: Calibration | None = None) -> Machine:
    """Return the profile of a machine with `card` (None: the processor alone) and `host`; `known` are its rates."""
    ram_gib = _round(host.total_bytes / GIB)
    if card is None:
        profile = replace(load_hardware(CPU), memory_gib=ram_gib, host_ram_gib=ram_gib)
        assumed = Machine(profile, ("no accelerator was found: figures of the processor are assumed",), CPU)
        return assumed if known is None else _with_rates(assumed, known)
    shipped, notes = _like(card)
    changed = replace(shipped, host_ram_gib=ram_gib, unified=shipped.unified or card.unified)
    if card.memory_bytes:
        changed = replace(changed, memory_gib=_round(card.memory_bytes / GIB))
    changed, busy = _with_others(changed, card)
    if known is not None:
        return _with_rates(Machine(changed, (busy,) if busy else (), card.key), known)
    changed, link = _with_link(changed, card)
    return Machine(changed, tuple(note for note in (*notes, link, busy) if note), card.key)


def key_of(card: Card | None) -> str:
    """Return the name under which rates of a card, or of the processor, are kept."""
    return CPU if card is None else card.key


def link_gbps(card: Card | None) -> float | None:
    """Return what large pinned copies reach on the best link that card and slot can do; None where nobody says."""
    if card is None:
        return None
    return LANE_GBPS.get(card.link_generation or 0, 0.0) * (card.link_width or 0) * WIRE_SHARE or None


@cache
def shipped_names() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    return tuple(sorted(path.stem for path in (CONF / "hardware").glob("*.yaml") if path.stem != AUTO))


def card_of(device: str) -> Card | None:
    """The card that `device` means. Raises `ConfigError` where there is none of that number."""
    kind, _, number = device.partition(":")
    if kind == CPU:
        return None
    cards = read_cards()
    index = int(number or 0)
    if index < len(cards):
        return cards[index]
    if kind == AUTO or not cards:
        return None
    raise ConfigError.of("device", f"there is no {device}: this machine has {len(cards)}")


def _like(card: Card) -> tuple[HardwareProfile, tuple[str, ...]]:
    """The shipped profile of a card, else the closest one with a note that says so."""
    words = _words(card.name)
    candidates = [name for name in shipped_names() if load_hardware(name).vendor == card.vendor]
    exact = [name for name in candidates if _words(name) == words]
    if exact:
        return _nearest(exact, card), ()
    part = [name for name in candidates if _words(name) and _words(name) < words]
    most = max((len(_words(name)) for name in part), default=0)
    closest = [name for name in part if len(_words(name)) == most] or candidates
    if not closest:
        raise ConfigError.of("hardware", f"no shipped profile is like '{card.name}'", hint="choose one: hardware=NAME")
    profile = _nearest(closest, card)
    note = f"no profile of '{card.name}' is shipped: the rates of {profile.name} are assumed; `calibrate` measures them"
    return profile, (note,)


def _nearest(names: Sequence[str], card: Card) -> HardwareProfile:
    wanted = card.memory_bytes / GIB
    return min((load_hardware(name) for name in names), key=lambda profile: abs(profile.memory_gib - wanted))


def _words(name: str) -> frozenset[str]:
    """The words that tell cards apart; sizes (`16gb`) and the like do not."""
    parts = "".join(char if char.isalnum() else " " for char in name.lower()).split()
    return frozenset(part for part in parts if part not in _NOISE and not _is_size(part))


def _is_size(part: str) -> bool:
    """Whether a word is a size in GB (`80gb`, or `16` beside `gb`), not a model's number (`4090`)."""
    return (part.removesuffix("gb").isdecimal() and len(part.removesuffix("gb")) < 4) or part == "gb"


def _with_link(profile: HardwareProfile, card: Card) -> tuple[HardwareProfile, str]:
    """Slow the copies down where the slot gives less than the profile assumes."""
    rate = link_gbps(card)
    if profile.unified or rate is None or rate > 0.8 * profile.h2d_pinned_gbps:
        return profile, ""
    slower = replace(
        profile,
        h2d_pinned_gbps=_round(rate),
        d2h_gbps=_round(min(rate, profile.d2h_gbps)),
        h2d_pageable_gbps=_round(min(rate, profile.h2d_pageable_gbps)),
    )
    link = f"PCIe {card.link_generation}.0 x{card.link_width}"
    return slower, f"the card's link is {link}: copies at {rate:.1f} GB/s instead of {profile.h2d_pinned_gbps:g}"


def _with_others(profile: HardwareProfile, card: Card) -> tuple[HardwareProfile, str]:
    """Reserve what others hold on the card now."""
    used = card.used_bytes / GIB
    reserve = min(_round(max(profile.reserve_gib, used + CONTEXT_GIB)), profile.memory_gib)
    note = f"the card is busy: {used:.1f} of {profile.memory_gib:g} GiB are taken by others" if used > BUSY_GIB else ""
    return replace(profile, reserve_gib=reserve), note


def _with_rates(machine: Machine, known: Calibration) -> Machine:
    """Lay what was measured over what is assumed; what was wrong with the machine is said again, but who was busy."""
    lasting = tuple(f"calibrate found a {flag}" for flag in known.flags if not flag.startswith("busy"))
    profile = laid_over(machine.profile, known.rates, known.source)
    return Machine(profile, (known.source, *machine.notes, *lasting), machine.key)


def _with_own(profile: HardwareProfile, own: Mapping[str, Any]) -> HardwareProfile:
    """Lay the user's own figures over those that were read."""
    values = asdict(profile)
    if "efficiency" in own:
        own = {**own, "efficiency": {**values["efficiency"], **own["efficiency"]}}
    return HardwareProfile.from_mapping({**values, **own})


def _round(value: float) -> float:
    return round(value, 2)
