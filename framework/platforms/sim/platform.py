"""The simulated accelerator behind the platform protocol. Imports torch."""

from collections.abc import Mapping
from typing import Any

import torch

from framework.platforms.hardware import DEFAULT_SIM_HARDWARE, GIB, HardwareProfile, load_hardware
from framework.platforms.protocol import EventHandle, MemoryFigures, StreamHandle
from framework.platforms.sim.backend import install
from framework.platforms.sim.generator import SimGenerator
from framework.platforms.sim.streams import Event, Stream
from framework.platforms.sim.tensor import SimTensor, poison
from framework.platforms.sim.transfers import copy
from framework.platforms.sim.world import World, current, start
from framework.platforms.visible import check_visible


class SimPlatform:
    """One device of the current simulated machine.

    `hardware` is a composed profile; where it differs from the current machine's, a new machine is started. None
    keeps the current machine, or starts the default one.
    """

    kind = "sim"
    overlaps = True
    pins = True
    unified = False

    def __init__(self, index: int = 0, hardware: Mapping[str, Any] | None = None) -> None:
        check_visible(index)
        install()
        self.world = _machine(hardware)
        self._device = self.world.device(index)
        self.device = torch.device("sim", index)

    def make_stream(self, name: str) -> StreamHandle:
        return self._device.make_stream(name)

    def current_stream(self) -> StreamHandle:
        return self._device.current

    def record_event(self, stream: Stream) -> EventHandle:
        return stream.record_event()

    def wait_event(self, stream: Stream, event: Event) -> None:
        stream.wait_event(event)

    def synchronize(self, target: StreamHandle | EventHandle | None = None) -> None:
        (target or self._device).synchronize()

    def allocate_pinned(self, size_bytes: int) -> torch.Tensor | None:
        return self.world.pinned.allocate(size_bytes)

    def copy_async(self, dst: torch.Tensor, src: torch.Tensor, stream: Stream) -> None:
        copy(dst, src, non_blocking=True, stream=stream)

    def reserve(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def retire(self, memory: torch.Tensor) -> None:
        assert isinstance(memory, SimTensor), "only memory of this device can be retired"
        memory.block.retire(*memory.span())
        poison(memory.raw)

    def memory(self) -> MemoryFigures:
        ledger = self._device.ledger
        return MemoryFigures(
            total_bytes=int(self.world.profile.memory_gib * GIB),
            free_bytes=max(0, ledger.capacity_bytes - ledger.live_bytes),
            allocated_bytes=ledger.live_bytes,
            peak_bytes=ledger.peak_bytes,
            pinned_bytes=self.world.pinned.live_bytes,
        )

    def cap(self, size_bytes: int | None) -> None:
        own = self.world.capacity_bytes
        self._device.ledger.capacity_bytes = own if size_bytes is None else min(own, size_bytes)

    def reset_peak(self) -> None:
        self._device.ledger.reset_peak()

    def release_cache(self) -> None:
        """The ledger keeps nothing back."""

    def seconds(self) -> float:
        """Virtual seconds since this machine was started, until its kernels are done."""
        return max(self.world.host_s, self._device.compute_free_s)

    def make_generator(self, seed: int) -> torch.Generator:
        return SimGenerator(self.device).manual_seed(seed)

    def mark(self, **labels: str | int | None) -> None:
        self.world.mark(**labels)


def _machine(hardware: Mapping[str, Any] | None) -> World:
    if hardware is None:
        return current()
    wanted = load_hardware(DEFAULT_SIM_HARDWARE) if hardware.get("name") == "auto" else profile_of(hardware)
    world = current()
    return world if world.profile == wanted else start(World(wanted))


def profile_of(hardware: Mapping[str, Any]) -> HardwareProfile:
    """Return the profile of a composed `hardware` mapping."""
    return HardwareProfile.from_mapping(hardware)
