"""What a run gives back to Python: pictures, the record, the timeline. No torch, no numpy at import."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from framework.runtime.events import MemorySampled
from framework.tracing.spans import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Form = Literal["images", "arrays", "paths"]
"""How outputs come: PIL images, arrays of numbers, or files of a run folder."""
FORMS: tuple[Form, ...] = ("images", "arrays", "paths")

IntervalKind = Literal["load", "request", "stage", "step", "use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One picture or clip of one request.

    One of these is set, by the form that was asked for: `images` are its frames as 8-bit RGB, one for a picture;
    `array` is `(frames, height, width, 3)`, float32 from 0 to 1, the exact values; `path` is the file. `frames_sha256`
    hashes the exact values, as records have it.
    """

    request: int
    seed: int | None
    frames_sha256: str
    fps: int | None = None
    images: "tuple[Image, ...]" = ()
    array: "NDArray[np.float32] | None" = field(default=None, repr=False)
    path: Path | None = None

    @property
    def image(self) -> "Image":
        """The first frame. Raises `ValueError` where images were not asked for."""
        if not self.images:
            raise ValueError("outputs came in another form; ask for outputs='images'")
        return self.images[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Something that lasted: seconds from the start of the run. `name` is a stage's, a component's or `step N`."""

    kind: IntervalKind
    name: str
    start_s: float
    end_s: float
    request: int | None = None
    stage: str | None = None
    phase: str | None = None
    device_peak_bytes: int | None = None  # of stages, where host and device are two

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Memory `at_s` seconds after the start; see `MemorySampled`."""

    at_s: float
    memory: MemorySampled


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened when. `intervals` by the time they ended; `trace` has layers and moves with `output.trace=true`.

    `moved_bytes` are weights that came to the device during requests, by component.
    """

    intervals: tuple[Interval, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    moved_bytes: Mapping[str, int] = field(default_factory=dict)
    trace: tuple[Span, ...] = ()

    def of(self, kind: IntervalKind) -> tuple[Interval, ...]:
        """Return the intervals of one kind."""
        return tuple(one for one in self.intervals if one.kind == kind)

    @property
    def device_peak_bytes(self) -> int | None:
        """The largest peak of any stage; None where host and device are one."""
        return max((one.device_peak_bytes for one in self.intervals if one.device_peak_bytes is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run made. `record` is what `record.json` holds; `folder` is that of the run where it wrote one.

    `notes` are the lines a user would have seen: foldings, fallbacks, recoveries.
    """

    outputs: tuple[Output, ...]
    record: Mapping[str, Any] = field(repr=False)
    timeline: Timeline = field(repr=False)
    seconds: float
    folder: Path | None = None
    notes: tuple[str, ...] = field(default=(), repr=False)

    def of_request(self, index: int) -> tuple[Output, ...]:
        """Return the outputs of one request, counted from 0."""
        return tuple(output for output in self.outputs if output.request == index)

    @property
    def image(self) -> "Image":
        """The first frame of the first output."""
        if not self.outputs:
            raise ValueError("the run made no output: its graph has no stage of kind 'export'")
        return self.outputs[0].image

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of all outputs, where they were written."""
        return tuple(output.path for output in self.outputs if output.path is not None)
