"""Copies to, from and on simulated devices: what CUDA promises about each, and not more. Imports torch.

A copy between a device and pinned host memory returns at once, and its bytes arrive only when something that is
ordered after it looks, or when the host has waited for it. Every other copy over the bus is done when it returns.
"""

import weakref
from collections.abc import Callable

import torch

from framework.platforms.sim.block import Pending
from framework.platforms.sim.ledger import PinnedBuffer
from framework.platforms.sim.streams import Stream
from framework.platforms.sim.tensor import SimTensor, fresh, poison
from framework.platforms.sim.world import Device, World

WATCH_BYTES = 1 << 20
"""Host sources up to this size are compared when their copy is done; larger ones show by their late arrival only."""


def copy(dst: torch.Tensor, src: torch.Tensor, *, non_blocking: bool, stream: Stream | None = None) -> None:
    """Copy `src` into `dst`, with broadcasting and dtype conversion, on `stream` (None: the device's current one)."""
    if not isinstance(dst, SimTensor):
        assert isinstance(src, SimTensor), "one side of a simulated copy is on a simulated device"
        _to_host(dst, src, non_blocking, stream or src.block.device.current)
    elif not isinstance(src, SimTensor):
        _to_device(dst, src.detach(), non_blocking, stream or dst.block.device.current)
    elif src.block.device is dst.block.device:
        _on_device(dst, src, stream or dst.block.device.current)
    else:
        _between(dst, src)


def to_host(src: SimTensor, dtype: torch.dtype, memory_format: torch.memory_format, non_blocking: bool) -> torch.Tensor:
    """Return a host copy of `src`; with `non_blocking` it is pinned and arrives late, as on CUDA."""
    out = torch.empty_like(src.raw, dtype=src.dtype, memory_format=memory_format)
    if non_blocking and dtype == src.dtype and out.is_contiguous() and src.raw.is_contiguous():
        _late_to_host(out, src, src.block.device.current, None)
        return out
    _to_host(out, src, False, src.block.device.current)
    return out.to(dtype)


def to_device(host: torch.Tensor, device: Device) -> SimTensor:
    """Return a copy of pageable or 0-dimensional `host` on `device`, done when it returns."""
    out = fresh(torch.empty_like(host), device)
    _to_device(out, host, False, device.current)
    return out


def to_other_device(src: SimTensor, device: Device, dtype: torch.dtype) -> SimTensor:
    out = fresh(torch.empty_like(src.raw, dtype=dtype), device)
    _between(out, src)
    return out


def _to_device(dst: SimTensor, src: torch.Tensor, non_blocking: bool, stream: Stream) -> None:
    world, size_bytes = _begin(dst, stream, "h2d")
    lo, hi = dst.span()
    dst.block.write(lo, hi, stream, "h2d")
    buffer = world.pinned.find(src)
    profile = world.profile
    rate = profile.h2d_pageable_gbps if buffer is None else profile.h2d_pinned_gbps
    world.run_copy(stream, "h2d", size_bytes, rate)
    raw = dst.raw
    if buffer is None or not non_blocking or not _same_layout(raw, src):
        raw.copy_(src)
        stream.synchronize()
        return
    buffer.users[stream.number] = stream.sequence
    poison(raw)
    recall = _recall(src, buffer)
    pending = Pending(lo, hi, stream, lambda: _fill(raw, recall()), _watch(world, recall, stream))
    dst.block.pending.append(pending)
    world.add_in_flight(pending)


def _to_host(dst: torch.Tensor, src: SimTensor, non_blocking: bool, stream: Stream) -> None:
    buffer = src.block.device.world.pinned.find(dst)
    if non_blocking and buffer is not None and _same_layout(dst, src.raw):
        _late_to_host(dst, src, stream, buffer)
        return
    _start_to_host(dst, src, stream)
    dst.copy_(src.raw)
    stream.synchronize()


def _late_to_host(dst: torch.Tensor, src: SimTensor, stream: Stream, buffer: PinnedBuffer | None) -> None:
    world = _start_to_host(dst, src, stream)
    if buffer is not None:
        buffer.users[stream.number] = stream.sequence
    snapshot = src.raw.clone()
    poison(dst)
    recall = _recall(dst, buffer)
    world.add_in_flight(Pending(0, 0, stream, lambda: _fill(recall(), snapshot)))


def _start_to_host(dst: torch.Tensor, src: SimTensor, stream: Stream) -> World:
    world, _ = _begin(src, stream, "d2h")
    src.block.read(*src.span(), stream, "d2h")
    world.run_copy(stream, "d2h", dst.numel() * dst.element_size(), world.profile.d2h_gbps)
    return world


def _on_device(dst: SimTensor, src: SimTensor, stream: Stream) -> None:
    world = dst.block.device.world
    world.launch(stream)
    src.block.read(*src.span(), stream, "copy_")
    dst.block.write(*dst.span(), stream, "copy_")
    dst.raw.copy_(src.raw)
    moved = dst.numel() * (dst.element_size() + src.element_size())
    world.run_kernel(stream, moved / (world.profile.memory_gbps * 1e9))


def _between(dst: SimTensor, src: SimTensor) -> None:
    """Copy between two devices, after and before everything else on their current streams."""
    ours, theirs = dst.block.device.current, src.block.device.current
    ours.wait_stream(theirs)
    world, size_bytes = _begin(dst, ours, "p2p")
    src.block.read(*src.span(), ours, "p2p")
    dst.block.write(*dst.span(), ours, "p2p")
    dst.raw.copy_(src.raw)
    world.run_copy(ours, "p2p", size_bytes, world.profile.h2d_pinned_gbps)
    theirs.wait_stream(ours)


def _begin(tensor: SimTensor, stream: Stream, direction: str) -> tuple[World, int]:
    world = tensor.block.device.world
    size_bytes = tensor.numel() * tensor.element_size()
    world.faults.on_copy(direction, size_bytes)
    world.launch(stream)
    return world, size_bytes


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether the copy is one run of bytes, so that no temporary is needed."""
    return one.dtype == other.dtype and one.shape == other.shape and one.is_contiguous() and other.is_contiguous()


def _recall(host: torch.Tensor, buffer: PinnedBuffer | None) -> Callable[[], torch.Tensor | None]:
    """Return what finds `host` again when its copy is done.

    A copy does not keep memory alive that we locked ourselves.
    """
    if buffer is None or buffer.kept:
        return lambda: host
    storage = weakref.ref(host.untyped_storage())
    dtype, offset, shape, strides = host.dtype, host.storage_offset(), host.shape, host.stride()

    def find() -> torch.Tensor | None:
        memory = storage()
        return None if memory is None else torch.empty(0, dtype=dtype).set_(memory, offset, shape, strides)

    return find


def _fill(dst: torch.Tensor | None, src: torch.Tensor | None) -> None:
    if dst is None or src is None:
        return  # freed on the way, which the pool has reported
    with torch.inference_mode():  # the tensors may have been made in either mode
        dst.copy_(src)


def _watch(world: World, recall: Callable[[], torch.Tensor | None], stream: Stream) -> Callable[[], None] | None:
    """Return a check that the host left the source alone while the copy may have been reading it."""
    src = recall()
    if src is None or src.numel() * src.element_size() > WATCH_BYTES:
        return None
    before = src.clone()

    def check() -> None:
        now = recall()
        if now is not None and not torch.equal(before.view(torch.uint8), now.view(torch.uint8)):
            size = before.numel() * before.element_size()
            world.report(f"{size} bytes of pinned memory changed while a copy on {stream} could still read them")

    return check
