"""Stage `fade`: a clip that comes from black and goes to black. No torch at import."""

from dataclasses import replace
from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse
from framework.values import Frames

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value

FADE_S = 0.5


@register_stage("fade")
class Fade:
    """Reads and writes `frames`, so the YAML renames what it writes: `outputs: {frames: faded}`."""

    inputs = ("frames",)
    optional_inputs: tuple[str, ...] = ()
    outputs = ("frames",)
    component_uses: tuple[ComponentUse, ...] = ()  # it needs no model

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        import torch

        frames = ctx.values["frames"]
        assert isinstance(frames, Frames)
        brightness = torch.tensor(brightness_of(frames.data.shape[1], frames.fps), device=frames.data.device)
        return {"frames": replace(frames, data=frames.data * brightness.view(1, -1, 1, 1, 1))}


def brightness_of(num_frames: int, fps: int | None) -> list[float]:
    """Return one factor in (0, 1] for each frame; a picture (`fps` None) or a very short clip stays as it is."""
    num_faded = min(round(FADE_S * (fps or 0)), (num_frames - 1) // 2)
    from_edge = (min(index, num_frames - 1 - index) for index in range(num_frames))
    return [min(1.0, (distance + 1) / (num_faded + 1)) for distance in from_edge]
