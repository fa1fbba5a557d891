"""Small clips and a run folder with everything that a writer needs."""

from dataclasses import dataclass, field
from pathlib import Path

import torch

from framework.outputs.writer import OutputWriter
from framework.runtime import events
from framework.spec import OutputSpec, RequestSpec
from framework.values import Frames

REQUEST = RequestSpec(prompt="数字 “7” moves\nleft", num_frames=5, height=32, width=48, fps=8)


def random_frames(outputs: int = 1, frames: int = 5, height: int = 32, width: int = 48) -> Frames:
    generator = torch.Generator().manual_seed(outputs + frames)
    return Frames(torch.rand(outputs, frames, height, width, 3, generator=generator), fps=8)


@dataclass
class Desk:
    """A writer on a bus whose events are kept."""

    folder: Path
    heard: list[events.Event] = field(default_factory=list)
    bus: events.EventBus = field(default_factory=events.EventBus)

    def writer(self, output: OutputSpec, *requests: RequestSpec) -> OutputWriter:
        self.bus.subscribe(self.heard.append)
        return OutputWriter(output, self.folder, self.bus, requests or (REQUEST,), "c0ffee")

    def of(self, kind: type) -> list[events.Event]:
        return [event for event in self.heard if isinstance(event, kind)]

    def notes(self) -> str:
        return "\n".join(event.text for event in self.heard if isinstance(event, events.Note))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())
