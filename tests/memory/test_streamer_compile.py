"""Compiled layers stay compiled: swapping weights causes no graph of its own (LI-06)."""

from collections.abc import Iterator
from typing import Any

import memory_builders as build
import pytest
import torch
from torch import Tensor


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize("whole_module", [False, True])
def test_the_number_of_compilations_does_not_rise_after_the_first_request(whole_module: bool) -> None:
    compiled = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        compiled.append(graph)
        return graph.forward

    model = build.layered([6] * 5)
    x: Tensor = torch.ones(2, 4)
    expected = build.reference(model, x)
    streamer = build.stream(model, build.resources(device="cpu"), prefetch=1, resident=1)
    for block in model.blocks:
        if whole_module:
            block.compile(backend=backend)
        else:
            block.forward = torch.compile(block.forward, backend=backend)
    counts = []
    for _ in range(4):
        streamer.start()
        streamer.wait()
        y = x
        for _ in range(3):
            y = model(y)
        streamer.finish()
        assert torch.equal(y, expected)
        counts.append(len(compiled))
    assert counts[0] > 0
    assert counts[1:] == counts[:1] * 3
