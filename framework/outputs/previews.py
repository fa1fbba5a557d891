"""Pictures from inside the loop: latents seen through their three strongest directions. No torch.

Nothing is decoded, so that a preview costs a copy of one frame's latents and some arithmetic on the host. Brightness is
the direction in which the latents vary most, colour the next two; it shows where things are, not their true colours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError
from framework.outputs.image import write_image
from framework.runtime import events
from framework.spec import RequestSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = "previews"
MIN_SIDE = 256  # pixels: smaller ones are enlarged without smoothing
PACKED_PICTURE, PACKED_VIDEO = 16, 32  # pixels that one token of packed latents stands for
SPREAD = 2.5  # standard deviations between grey and an end


class PreviewSink:
    """A sink that writes `previews/stepNNN.png` every so many steps, and tells the bus of each.

    Latents of a shape that it does not know give one note and no picture; a preview never ends a run.
    """

    def __init__(self, every_steps: int, folder: Path, bus: events.EventBus, requests: Sequence[RequestSpec]) -> None:
        self._every, self._folder, self._bus, self._requests = every_steps, folder / FOLDER, bus, tuple(requests)
        self._off = False

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.StepDone) or event.values is None or self._off:
            return
        if event.step % self._every and event.step != event.num_steps:
            return
        try:
            path = self._write(event)
        except (ValueError, RuntimeError, OSError) as error:
            self._off = True
            self._bus.emit(events.Note(f"preview: no pictures from inside the loop: {error}"))
            return
        self._bus.emit(events.PreviewSaved(event.request, event.step, str(path)))

    def _write(self, event: events.StepDone) -> Path:
        from PIL.Image import Resampling, fromarray

        picture = fromarray(latent_picture(one_frame(event.values, self._requests[event.request])))
        times = max(1, MIN_SIDE // max(picture.size))
        picture = picture.resize((picture.width * times, picture.height * times), Resampling.NEAREST)
        mark = f"{event.request:03d}-" if len(self._requests) > 1 else ""
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{mark}{event.stage}-step{event.step:03d}.png"
        write_image(path, picture, None, {"stage": event.stage, "step": event.step, "of": event.num_steps})
        return path


def make_preview_sink(
    config: Any, folder: Path, bus: events.EventBus, requests: Sequence[RequestSpec]
) -> PreviewSink | None:
    """Return the sink for `preview` of a composed config, None where it is not said."""
    every = (config.get("preview") or {}).get("every_steps")
    if every is None:
        return None
    if every < 1:
        raise ConfigError.of("preview.every_steps", f"{every} is not at least 1")
    return PreviewSink(every, folder, bus, requests)


def one_frame(latents: Any, request: RequestSpec) -> "NDArray[np.float32]":
    """Return `(channels, height, width)` of the first output's middle frame, on the host.

    Takes (outputs, channels, height, width), with frames before the height, or packed as (outputs, tokens, channels).
    Raises `ValueError` for any other shape.
    """
    if latents.ndim == 3:
        rows, columns = _grid(latents.shape[1], request)
        frames = latents.shape[1] // (rows * columns)
        middle = latents[0].unflatten(0, (frames, rows, columns))[frames // 2].movedim(-1, 0)
    elif latents.ndim == 5:
        middle = latents[0, :, latents.shape[2] // 2]
    elif latents.ndim == 4:
        middle = latents[0]
    else:
        raise ValueError(f"latents of shape {tuple(latents.shape)} are not known")
    picture: NDArray[np.float32] = middle.detach().float().cpu().numpy()
    return picture


def latent_picture(latents: "NDArray[np.float32]") -> "NDArray[np.uint8]":
    """Return `(height, width, 3)` for `(channels, height, width)`: brightness and colour by principal components."""
    import numpy as np

    channels = latents.shape[0]
    flat = latents.reshape(channels, -1)
    flat = np.nan_to_num(flat - flat.mean(axis=1, keepdims=True))
    _, axes = np.linalg.eigh(flat @ flat.T / flat.shape[1])
    strongest = axes[:, ::-1][:, :3].T
    largest = np.abs(strongest).argmax(axis=1)  # a direction has no sign of its own: keep it from step to step
    strongest = strongest * np.sign(strongest[np.arange(len(strongest)), largest])[:, None]
    parts = strongest @ flat
    parts = parts / (SPREAD * parts.std(axis=1, keepdims=True)[:1] + 1e-9)
    light, *colors = [part.reshape(latents.shape[1:]) for part in parts]
    warm = colors[0] if colors else np.zeros_like(light)
    green = colors[1] if len(colors) > 1 else np.zeros_like(light)
    rgb = np.stack([light + warm, light + green, light - warm], axis=-1)
    return (np.clip(rgb * 0.5 + 0.5, 0, 1) * 255).round().astype(np.uint8)


def _grid(num_tokens: int, request: RequestSpec) -> tuple[int, int]:
    """Return rows and columns of one frame of packed latents."""
    size = PACKED_VIDEO if (request.num_frames or 1) > 1 else PACKED_PICTURE
    if request.height and request.width:
        for patch in (size, PACKED_PICTURE, PACKED_VIDEO):
            rows, columns = request.height // patch, request.width // patch
            if rows and columns and num_tokens % (rows * columns) == 0:
                return rows, columns
    side = round(num_tokens**0.5)
    if side * side == num_tokens:
        return side, side
    raise ValueError(f"{num_tokens} packed latents do not say their height and width")
