"""Stage `safety_check`: pictures that the checkpoint's safety checker flags become black. No torch at import."""

from typing import TYPE_CHECKING, Any

from framework.registry import register_stage
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("safety_check")
class SafetyCheck:
    """Does what `StableDiffusionPipeline` does after the VAE; rename one of its two `frames` in the graph.

    A checkpoint may leave its checker out; then the pictures go on as they are, and a line says so.
    """

    inputs = ("frames",)
    optional_inputs: tuple[str, ...] = ()
    outputs = ("frames",)
    component_uses = (ComponentUse(component="safety_checker", start_at_stage_entry=False),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        from framework.values import Frames

        frames = ctx.values["frames"]
        assert isinstance(frames, Frames)
        if getattr(ctx.pipeline_view(), "safety_checker", None) is None:
            ctx.note("this checkpoint has no safety checker, so nobody looks at the pictures")
            return {"frames": frames}
        data = frames.data.clone()
        with ctx.use("safety_checker") as checker:
            for output in data:
                flagged = _flagged(ctx, checker, output)
                output[flagged] = 0.0
                if flagged.any():
                    ctx.note(f"the safety checker blackened {int(flagged.sum())} of {len(flagged)} pictures")
        return {"frames": Frames(data, frames.fps)}


def _flagged(ctx: "StageContext", checker: Any, pictures: Any) -> Any:
    """Return one boolean for each picture of `(frames, height, width, 3)`."""
    import torch
    from diffusers.image_processor import VaeImageProcessor

    extractor = ctx.pipeline_view().feature_extractor
    images = VaeImageProcessor.numpy_to_pil(pictures.numpy())
    pixels = extractor(images, return_tensors="pt").pixel_values.to(ctx.device, checker.dtype)
    blank = torch.ones(len(images), 3, 1, 1)  # what it would blacken; the pictures themselves stay on the host
    _, flags = checker(images=blank, clip_input=pixels)
    return torch.tensor(flags, dtype=torch.bool)
