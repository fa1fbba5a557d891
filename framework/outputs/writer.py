"""Turns decoded frames into the files of the run folder and tells the bus. No torch."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, Interrupted, OutputError
from framework.outputs.frames import FALLBACK_SUFFIX, save_frames, to_pictures
from framework.outputs.hashing import file_sha256, frames_sha256
from framework.outputs.image import find_image_suffix, write_image
from framework.outputs.sheet import draw_sheet
from framework.outputs.video import VideoWriter, find_video_writer, has_odd_side
from framework.runtime import events
from framework.spec import OutputSpec, RequestSpec
from framework.values import Frames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_FPS = 16  # Wan's own rate


@dataclass(frozen=True, slots=True)
class _Item:
    """One output of a request on its way to a file; `frames` keeps the first dimension, of size 1."""

    name: str  # of the file, without suffix
    frames: Frames
    fps: int
    metadata: Mapping[str, Any]


class OutputWriter:
    """Writes what each request produced into `folder` and emits `OutputSaved` for every file.

    Constructing one runs `check_writers`, so it belongs before loading; it emits a `Note` where another format than the
    one asked for is written. Seeds come from the `RequestStarted` events of `bus`.
    """

    def __init__(
        self,
        output: OutputSpec,
        folder: Path,
        bus: events.EventBus,
        requests: Sequence[RequestSpec],
        config_hash: str,
    ) -> None:
        self._image_suffix, self._video = check_writers(output, requests)
        self._output, self._folder, self._bus, self._requests = output, folder, bus, tuple(requests)
        self._config_hash = config_hash
        self._seeds: dict[int, tuple[int, ...]] = {}
        self._say_note()
        bus.subscribe(self._remember_seeds)

    def save(self, frames: Frames, request_index: int) -> None:
        """Write a video or a picture for each output of one request, then the contact sheet.

        Raises `OutputError` when a writer fails; the frames are then kept in a safetensors file that the message names,
        and no partial file stays. An interrupt while writing keeps them too, and goes on.
        """
        try:
            self._save(frames, request_index)
        except (Interrupted, KeyboardInterrupt):
            self._bus.emit(events.Note(f"interrupted while writing the results; {self._keep(frames, request_index)}"))
            raise
        except Exception as error:
            kept = self._keep(frames, request_index)
            raise OutputError(f"writing the results failed: {_reason(error)}; {kept}") from error

    def _save(self, frames: Frames, index: int) -> None:
        items, clips = list(self._items(frames, index)), []
        for item in items:
            pictures = to_pictures(item.frames)
            self._saved(index, self._write(item, pictures), item.frames)
            if self._output.sheet:
                clips.append(pictures)
        if sum(map(len, clips)) > 1:  # a sheet of a single picture would be that picture again
            prompt = self._requests[index].prompt
            captions = [f"seed {item.metadata['seed']}  {prompt}" for item in items]
            path = self._folder / f"sheet{self._request_mark(index)}.png"
            described = {**items[0].metadata, "seed": [item.metadata["seed"] for item in items], "output": None}
            write_image(path, draw_sheet(clips, captions), None, described)
            self._saved(index, path, frames)

    def _write(self, item: _Item, pictures: "NDArray[np.uint8]") -> Path:
        if len(pictures) == 1:
            from PIL.Image import fromarray

            path = self._folder / f"{item.name}{self._image_suffix}"
            write_image(path, fromarray(pictures[0]), self._output.quality, item.metadata)
            return path
        if self._video is None:  # the request did not say that it makes a video
            self._video = find_video_writer(self._output.video_codec, self._output.quality)
            self._say_note()
        path = self._folder / f"{item.name}{self._video.suffix}"
        if self._video.needs_even_sides and has_odd_side(pictures):
            self._bus.emit(events.Note(f"{path.name}: an odd side got one more line of pixels, which mp4 needs"))
        self._video.write(path, pictures, item.fps, item.metadata)
        return path

    def _saved(self, index: int, path: Path, frames: Frames) -> None:
        self._bus.emit(events.OutputSaved(index, str(path), file_sha256(path), frames_sha256(frames)))

    def _keep(self, frames: Frames, index: int) -> str:
        """Put the frames as they are into the fallback file; return what became of them as a phrase."""
        path = self._folder / f"request{self._request_mark(index)}{FALLBACK_SUFFIX}"
        try:
            save_frames(path, frames)
        except Exception as error:
            return f"the frames could not be kept either: {_reason(error)}"
        self._saved(index, path, frames)
        return f"the frames are kept in {path}"

    def _items(self, frames: Frames, index: int) -> Iterator[_Item]:
        request = self._requests[index]
        seeds = self._seeds.get(index) or request.seeds or ()
        num_outputs, num_frames = frames.data.shape[:2]
        kind = "image" if num_frames == 1 else "video"
        for number in range(num_outputs):
            mark = self._request_mark(index) + (f"-{number}" if num_outputs > 1 else "")
            metadata = {
                "request": _described(request),
                "seed": seeds[number] if number < len(seeds) else None,
                "output": number,
                "config_sha256": self._config_hash,
            }
            clip = Frames(frames.data[number : number + 1], frames.fps)
            yield _Item(f"{kind}{mark}", clip, frames.fps or request.fps or DEFAULT_FPS, metadata)

    def _request_mark(self, index: int) -> str:
        return f"-{index:03d}" if len(self._requests) > 1 else ""

    def _remember_seeds(self, event: events.Event) -> None:
        if isinstance(event, events.RequestStarted):
            self._seeds[event.index] = event.seeds

    def _say_note(self) -> None:
        if self._video is not None and self._video.note:
            self._bus.emit(events.Note(self._video.note))


def check_writers(output: OutputSpec, requests: Sequence[RequestSpec]) -> tuple[str, VideoWriter | None]:
    """Return the suffix of pictures and, where a request makes a video, the writer for it.

    Raises `ConfigError` for a setting that this machine cannot honour. Called before the run folder is claimed too, a
    refusal leaves nothing behind.
    """
    _check_quality(output.quality)
    suffix = find_image_suffix(output.image_format)
    makes_video = any((request.num_frames or 1) > 1 for request in requests)
    return suffix, find_video_writer(output.video_codec, output.quality) if makes_video else None


def _described(request: RequestSpec) -> dict[str, Any]:
    """The request without what nobody said; the seed has its own place."""
    values = dataclasses.asdict(request)
    return {key: value for key, value in values.items() if value is not None and key != "seeds"}


def _check_quality(quality: int | None) -> None:
    if quality is not None and not 1 <= quality <= 100:
        raise ConfigError.of("output.quality", f"{quality} is not between 1 (smallest file) and 100 (best picture)")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
