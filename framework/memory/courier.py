"""Copies blobs to the device on one stream of its own, in order and without letting the host wait. Imports torch."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from framework.memory.blobs import Blob, Source
from framework.platforms.protocol import EventHandle, Platform

STAGING_BYTES = 32 * 1024**2
STAGING_BUFFERS = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """One blob that passes through the staging buffers to `memory`, which is free once `after` is done."""

    component: str
    layer: str
    blob: Blob
    memory: Tensor
    after: EventHandle | None
    sent_bytes: int = 0


class Courier:
    """One copy stream of a platform. Pinned blobs go in one copy; others pass through a small ring of pinned buffers.

    Only there the host waits, for its own buffer to be free again; that is what a refused pin costs. There is no thread
    for it: what is sent ahead with `begin` fills the buffers and stops, and the rest follows in `complete`, when the
    layer is called. By then the kernels of the layer before are launched, so they run beside the copies, and virtual
    time is that of the recurrence (`bench.overlap_sim --tier pageable`); a thread would gain the launches, and cost
    the order in which everything happens.
    """

    def __init__(self, platform: Platform, staging_bytes: int = STAGING_BYTES) -> None:
        """`staging_bytes` 0: no page-locked buffers, so what is not pinned is copied as the driver does it."""
        self._buffers: list[tuple[Tensor, EventHandle | None]] | None = None
        self.moved: Counter[tuple[str, str]] = Counter()
        """Bytes of weights sent so far, by component and direction (`h2d`, `d2h`)."""
        self.platform = platform
        self.stream = platform.make_stream("copy")
        self._staging_bytes = staging_bytes
        self._turn = 0
        self._waiting: list[Delivery] = []

    def reserve(self, size_bytes: int) -> Tensor:
        """Take device memory whose writes are counted, in inference mode too; raises what the platform raises."""
        with torch.inference_mode(False):
            return self.platform.reserve(size_bytes)

    def follow_compute(self) -> None:
        """Hold back later copies until the work launched so far is done: it may still use memory reserved since."""
        platform = self.platform
        platform.wait_event(self.stream, platform.record_event(platform.current_stream()))

    def let_compute_follow(self) -> None:
        """Hold back later work until all copies so far are done: memory may be given up after this."""
        platform = self.platform
        platform.wait_event(platform.current_stream(), platform.record_event(self.stream))

    def stages(self, blob: Blob) -> bool:
        """Whether a blob passes through the buffers, which may make the host wait."""
        return self.platform.pins and blob.tier != "pinned" and blob.size_bytes > 0 and self._has_staging()

    def begin(self, component: str, layer: str, blob: Blob, memory: Tensor, after: EventHandle | None) -> Delivery:
        """Start to copy `blob` to the start of `memory` once `after` is done; what is in use is not waited for.

        For blobs that pass through the buffers; only the first of those that wait has some. To be followed by
        `complete` or `cancel`.
        """
        delivery = Delivery(component, layer, blob, memory, after)
        self._waiting.append(delivery)
        first = self._waiting[0]
        try:
            if not first.sent_bytes:
                self._send_windows(first, STAGING_BUFFERS)
        except BaseException:
            self.cancel(delivery)  # the caller will never have it
            raise
        return delivery

    def complete(self, delivery: Delivery) -> EventHandle:
        """Put all of a delivery on the stream and return the event of its arrival."""
        self._waiting.remove(delivery)
        self._send_windows(delivery)
        return self._arrival(delivery.blob)

    def cancel(self, delivery: Delivery) -> None:
        """Send nothing more of a delivery; what has been sent is ordered before all that the stream does later."""
        if delivery in self._waiting:
            self._waiting.remove(delivery)

    def send(self, component: str, layer: str, blob: Blob, memory: Tensor) -> EventHandle:
        """Copy `blob` to the start of `memory` and return the event of its arrival."""
        platform = self.platform
        platform.mark(component=component, layer=layer)
        whole = blob.memory
        if whole is not None and (blob.tier == "pinned" or not platform.pins):
            platform.copy_async(
                memory if memory.numel() == whole.numel() else memory.narrow(0, 0, whole.numel()), whole, self.stream
            )
        elif self.stages(blob):
            for start, end in _windows(blob.size_bytes, self._staging_bytes):
                self._send_window(blob.sources, start, end, memory)
        else:
            for source in blob.sources:
                platform.copy_async(_part(memory, source), source.data, self.stream)
        platform.mark(component=None, layer=None)
        self.moved[component, "h2d"] += blob.size_bytes
        return self._arrival(blob)

    def fetch(self, component: str, layer: str, blob: Blob, memory: Tensor) -> None:
        """Copy `memory` back over the blob's bytes on the host; they are valid when this returns."""
        self.follow_compute()
        self.platform.mark(component=component, layer=layer)
        for source in blob.sources:
            self.platform.copy_async(source.data, _part(memory, source), self.stream)
        self.platform.mark(component=None, layer=None)
        self.moved[component, "d2h"] += blob.size_bytes
        self.platform.synchronize(self.stream)

    def close(self) -> None:
        """Give the staging buffers back, once the copies that read them are done."""
        for _, event in self._buffers or ():
            if event is not None:
                self.platform.synchronize(event)
        self._buffers = None

    def __del__(self) -> None:
        self.close()

    def _arrival(self, blob: Blob) -> EventHandle:
        sent = self.platform.record_event(self.stream)
        blob.wait_sent = partial(self.platform.synchronize, sent)
        return sent

    def _send_windows(self, delivery: Delivery, most: int | None = None) -> None:
        """Put the next windows of a delivery on the stream, at most so many."""
        if not delivery.sent_bytes and delivery.after is not None:
            self.platform.wait_event(self.stream, delivery.after)
        size = delivery.blob.size_bytes
        self.platform.mark(component=delivery.component, layer=delivery.layer)
        for start in range(delivery.sent_bytes, size, self._staging_bytes)[:most]:
            end = min(size, start + self._staging_bytes)
            self._send_window(delivery.blob.sources, start, end, delivery.memory)
            delivery.sent_bytes = end
            self.moved[delivery.component, "h2d"] += end - start
        self.platform.mark(component=None, layer=None)

    def _send_window(self, sources: tuple[Source, ...], start: int, end: int, memory: Tensor) -> None:
        assert self._buffers is not None
        buffer, busy = self._buffers[self._turn]
        if busy is not None:
            self.platform.synchronize(busy)
        for source in sources:
            first, last = max(start, source.offset_bytes), min(end, source.offset_bytes + source.data.numel())
            if first < last:
                run = source.data[first - source.offset_bytes : last - source.offset_bytes]
                buffer[first - start : last - start].copy_(run)
        self.platform.copy_async(memory[start:end], buffer[: end - start], self.stream)
        self._buffers[self._turn] = (buffer, self.platform.record_event(self.stream))
        self._turn = (self._turn + 1) % len(self._buffers)

    def _has_staging(self) -> bool:
        if self._buffers is None and self._staging_bytes == 0:
            self._buffers = []
        if self._buffers is None:
            made = [self.platform.allocate_pinned(self._staging_bytes) for _ in range(STAGING_BUFFERS)]
            self._buffers = [(buffer, None) for buffer in made if buffer is not None]
        return bool(self._buffers)


def _windows(size_bytes: int, step_bytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size_bytes, step_bytes):
        yield start, min(size_bytes, start + step_bytes)


def _part(memory: Tensor, source: Source) -> Tensor:
    return memory.narrow(0, source.offset_bytes, source.data.numel())
