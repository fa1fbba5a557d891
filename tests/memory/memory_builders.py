"""Small layered models and what is needed to stream them on `sim`. Imports torch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from framework.memory.courier import Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.pin_ledger import GIB, PinLedger
from framework.memory.policy import Knobs
from framework.memory.resources import Resources
from framework.memory.streamer import Streamer
from framework.platforms import make_platform

PLENTY = HostMemory(64 * GIB, 64 * GIB)


def resources(
    *,
    available: int = 64 * GIB,
    table_bytes: int = 2**40,
    device: str = "sim",
    shared_ring: Sequence[str] = (),
    **store: Any,
) -> Resources:
    platform = make_platform(device)
    ledger = PinLedger(HostMemory(64 * GIB, available))
    courier = Courier(platform, staging_bytes=512)
    host = HostStore(platform, ledger, memory=lambda: PLENTY, **store)
    return Resources(courier, host, ring_names=dict.fromkeys(shared_ring, "shared"), table_bytes=table_bytes)


class Block(nn.Module):
    """One layer: a matrix, a bias of another dtype, and a buffer."""

    def __init__(self, width: int, inner: int, bias_dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.into = nn.Linear(width, inner)
        self.out = nn.Linear(inner, width)
        self.scale = nn.Parameter(torch.rand(width).to(bias_dtype))
        self.register_buffer("shift", torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(torch.tanh(self.into(x))) * self.scale.float() + self.shift


class Layered(nn.Module):
    """Two stacks between a head and a tail; `order` is the sequence of layers of each pass, in turn."""

    def __init__(self, inners: Sequence[int], width: int = 4, second: Sequence[int] = ()) -> None:
        super().__init__()
        self.head = nn.Linear(width, width)
        self.table = nn.Parameter(torch.rand(width))
        kinds = (torch.float32, torch.bfloat16, torch.float16)
        self.blocks = nn.ModuleList(Block(width, inner, kinds[i % 3]) for i, inner in enumerate(inners))
        self.more = nn.ModuleList(Block(width, inner) for inner in second)
        self.tail = nn.Linear(width, width)
        self.order: list[list[int]] = [list(range(len(inners) + len(second)))]
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        layers = [*self.blocks, *self.more]
        x = self.head(x) + self.table
        for index in self.order[self.passes % len(self.order)]:
            x = layers[index](x)
        self.passes += 1
        return self.tail(x)


def layered(inners: Sequence[int] = (6,) * 6, second: Sequence[int] = (), seed: int = 0, **options: Any) -> Layered:
    torch.manual_seed(seed)
    return Layered(inners, second=second, **options).eval().requires_grad_(False)


def knobs(model: nn.Module, prefetch: int = 1, resident: int = 0, **options: Any) -> Knobs:
    num_stacks = len(find_stacks("transformer", model, paths(model)))
    return Knobs((prefetch,) * num_stacks, (resident,) * num_stacks, **options)


def paths(model: nn.Module) -> tuple[str, ...]:
    lists = [name for name, part in model.named_children() if isinstance(part, nn.ModuleList) and len(part)]
    return tuple(lists)


def stream(model: nn.Module, shared: Resources, prefetch: int = 1, resident: int = 0, **options: Any) -> Streamer:
    component = options.pop("component", "transformer")
    chosen = knobs(model, prefetch, resident, **options)
    stacks = find_stacks("transformer", model, paths(model))
    return attach_streamer(component, model, chosen, shared, stacks)


def use(streamer: Streamer, model: nn.Module, x: Tensor, steps: int = 3) -> Tensor:
    """Run `steps` passes as one use on the streamer's device and return the last result on the host."""
    streamer.start()
    streamer.wait()
    try:
        y = x.to("sim")
        for _ in range(steps):
            y = model(y)
        return y.cpu()
    finally:
        streamer.finish()


def reference(model: nn.Module, x: Tensor, steps: int = 3) -> Tensor:
    """The same passes on the host, before anything is attached; the model's pass counter is put back."""
    y = x
    for _ in range(steps):
        y = model(y)
    if isinstance(model, Layered):
        model.passes = 0
    return y
