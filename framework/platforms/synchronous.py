"""What cpu and mps share: one memory, no streams, every call done when it returns. Imports torch."""

import torch

from framework.platforms.protocol import EventHandle, StreamHandle


class SynchronousPlatform:
    """The half of the protocol that means nothing where host and device memory are one."""

    overlaps = False
    pins = False
    unified = True
    device: torch.device

    def make_stream(self, name: str) -> StreamHandle:
        return None

    def current_stream(self) -> StreamHandle:
        return None

    def record_event(self, stream: StreamHandle) -> EventHandle:
        return None

    def wait_event(self, stream: StreamHandle, event: EventHandle) -> None:
        """Order is program order."""

    def allocate_pinned(self, size_bytes: int) -> torch.Tensor | None:
        return None

    def copy_async(self, dst: torch.Tensor, src: torch.Tensor, stream: StreamHandle) -> None:
        dst.copy_(src)

    def reserve(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def retire(self, memory: torch.Tensor) -> None:
        """Nothing to do: only `sim` checks it."""

    def make_generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)

    def mark(self, **labels: str | int | None) -> None:
        """No trace of copies is kept here."""
