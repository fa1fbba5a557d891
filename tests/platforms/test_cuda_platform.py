"""The one platform that `sim` does not prove: pinning without a card, the rest where there is one."""

import contextlib
from typing import Any

import pytest
import torch

from framework.platforms import cuda
from framework.platforms.cuda import CudaPlatform

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class Runtime:
    """Stands in for the CUDA runtime: notes registrations, refuses when told to."""

    def __init__(self) -> None:
        self.error = 0
        self.registered: dict[int, int] = {}

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int:
        if not self.error:
            self.registered[address] = size_bytes
        return self.error

    def cudaHostUnregister(self, address: int) -> int:
        del self.registered[address]
        return 0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    stand_in = Runtime()
    monkeypatch.setattr(cuda, "_runtime", lambda: stand_in)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return stand_in


def test_pinned_memory_is_exact_page_aligned_and_unlocked_with_its_last_view(runtime: Runtime) -> None:
    platform = CudaPlatform()
    memory = platform.allocate_pinned(5000)
    assert memory is not None
    assert memory.shape == (5000,)
    assert memory.data_ptr() % 4096 == 0
    assert list(runtime.registered.values()) == [5000]
    view = memory[100:]
    del memory
    view.fill_(1)
    assert runtime.registered
    del view
    assert runtime.registered == {}


def test_a_refusal_is_told_and_its_error_cleared(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[Any] = []
    monkeypatch.setattr(CudaPlatform, "_clear_error", lambda self: cleared.append(self))
    runtime.error = 2
    platform = CudaPlatform()
    assert platform.allocate_pinned(4096) is None
    assert cleared == [platform]
    empty = platform.allocate_pinned(0)
    assert empty is not None
    assert empty.numel() == 0


@pytest.mark.gpu
@needs_cuda
def test_a_copy_on_its_own_stream_is_ordered_by_events() -> None:
    platform = CudaPlatform()
    source = platform.allocate_pinned(1 << 20)
    assert source is not None
    assert source.is_pinned()
    source.fill_(7)
    target, stream = platform.reserve(1 << 20), platform.make_stream("copy")
    platform.wait_event(stream, platform.record_event(platform.current_stream()))
    platform.copy_async(target, source, stream)
    platform.wait_event(platform.current_stream(), platform.record_event(stream))
    assert int(target.sum(dtype=torch.int64)) == 7 << 20
    assert platform.memory().pinned_bytes == 1 << 20
    assert platform.memory().allocated_bytes >= 1 << 20


@pytest.mark.gpu
@needs_cuda
def test_a_refused_registration_does_not_fail_the_next_kernel() -> None:
    platform = CudaPlatform()
    memory = platform.allocate_pinned(4096)
    assert memory is not None
    assert int(cuda._runtime().cudaHostRegister(memory.data_ptr(), 4096, 0)) != 0
    platform._clear_error()
    assert torch.ones(4, device=platform.device).add_(1).sum().item() == 8


def test_a_cap_bounds_the_allocator_and_the_figure_of_what_is_free(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 1000))
    for name, value in {"memory_reserved": 100, "memory_allocated": 80, "max_memory_allocated": 90}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: asked.append(share))
    platform = CudaPlatform()
    platform.cap(250)
    assert platform.memory().free_bytes == 150
    platform.cap(5000)
    assert platform.memory().free_bytes == 700
    platform.cap(None)
    assert asked == [0.25, 1.0, 1.0]


@needs_cuda
def test_an_allocation_beyond_the_cap_fails() -> None:
    platform = CudaPlatform()
    platform.release_cache()
    platform.cap(torch.cuda.memory_reserved() + 64 * 1024**2)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            platform.reserve(128 * 1024**2)
    finally:
        platform.cap(None)
    platform.reserve(128 * 1024**2)
