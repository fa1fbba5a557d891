"""Ranges for NVIDIA's profilers (NVTX): stages, uses and layers by name. torch inside functions only."""

from typing import Any

from framework.runtime import events


class Ranges:
    """A sink that names what goes on; without effect until `start` finds a device that has ranges."""

    def __init__(self) -> None:
        self._nvtx: Any = None
        self._open: dict[str, Any] = {}
        self._depth = 0

    def start(self, kind: str) -> bool:
        """Return whether ranges mean anything on a device of this kind; from now on they are marked."""
        if kind == "cuda":
            import torch

            self._nvtx = torch.cuda.nvtx
        return self._nvtx is not None

    def push(self, name: str) -> None:
        """Begin a range inside the one that is open."""
        if self._nvtx is not None:
            self._nvtx.range_push(name)
            self._depth += 1

    def pop(self) -> None:
        """End the innermost range."""
        if self._nvtx is not None and self._depth:
            self._nvtx.range_pop()
            self._depth -= 1

    def __call__(self, event: events.Event) -> None:
        if self._nvtx is None:
            return
        match event:
            case events.StageStarted(stage=stage):
                self._begin(f"stage {stage}")
            case events.StageFinished(stage=stage):
                self._end(f"stage {stage}")
            case events.UseStarted(component=component):
                self._begin(f"use {component}")
            case events.UseFinished(component=component):
                self._end(f"use {component}")
            case events.RunFinished():
                for name in list(self._open):
                    self._end(name)

    def _begin(self, name: str) -> None:
        """Uses overlap, so they are not nested."""
        self._open[name] = self._nvtx.range_start(name)

    def _end(self, name: str) -> None:
        if name in self._open:
            self._nvtx.range_end(self._open.pop(name))
