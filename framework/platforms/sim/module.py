"""`torch.sim`: what torch.cuda is to CUDA, as far as libraries ask for it. Imports torch."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from framework.platforms.sim import streams
from framework.platforms.sim.world import current, device_of, use_stream


class Event(streams.Event):
    """As torch.cuda.Event: records and waits on the current stream where none is given."""

    __slots__ = ()

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        super().__init__()

    def record(self, stream: streams.Stream | None = None) -> None:
        (stream or device_of(None).current).record_event(self)

    def wait(self, stream: streams.Stream | None = None) -> None:
        (stream or device_of(None).current).wait_event(self)


class SimModule:
    """The functions that PyTorch, accelerate and diffusers look up on the module of a device."""

    Event = Event

    def Stream(self, device: Any = None, priority: int = 0) -> streams.Stream:
        return device_of(device).make_stream()

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return len(current().devices)

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Random numbers of the device come from the host's generator, which the caller seeds too."""

    def manual_seed(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def current_stream(self, device: Any = None) -> streams.Stream:
        return device_of(device).current

    def default_stream(self, device: Any = None) -> streams.Stream:
        return device_of(device).default

    def stream(self, stream: streams.Stream | None) -> AbstractContextManager[streams.Stream | None]:
        return use_stream(stream)

    def synchronize(self, device: Any = None) -> None:
        device_of(device).synchronize()

    def empty_cache(self) -> None:
        """The ledger keeps nothing back."""

    def memory_allocated(self, device: Any = None) -> int:
        return device_of(device).ledger.live_bytes

    def max_memory_allocated(self, device: Any = None) -> int:
        return device_of(device).ledger.peak_bytes

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        device_of(device).ledger.reset_peak()

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total bytes."""
        ledger = device_of(device).ledger
        return max(0, ledger.capacity_bytes - ledger.live_bytes), ledger.capacity_bytes
