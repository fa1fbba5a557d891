"""Family `pixart_sigma`: PixArt Sigma by `PixArtSigmaPipeline`'s own methods. No torch at import.

The size asked for is made from the nearest one that the checkpoint was trained on, then scaled and cut, as the pipeline
does; `pipeline.args.use_resolution_binning=false` makes it directly. The call has no callback that could end it, so
steps are counted at the scheduler.
"""

import inspect
from typing import TYPE_CHECKING, Any

from framework.registry import register_family
from framework.runtime.family_calls import argument, note_cut, scheduler_steps
from framework.runtime.image_family import ImageFamily, pictures
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext

BINNING = "use_resolution_binning"
CLEAN = "clean_caption"


@register_family("pixart_sigma")
class PixArtSigmaFamily(ImageFamily):
    """An embedding has a mask. Half of the denoiser's channels are a learned variance, which the pipeline drops."""

    pipeline_classes = ("PixArtSigmaPipeline",)
    call_arguments = (BINNING, CLEAN)
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def text_identity(self, ctx: "StageContext") -> str:
        return repr(_chosen(ctx, CLEAN))

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """T5's last layer `(1, max_length, width)` and which tokens count `(1, max_length)`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        note_cut(ctx, len(view.tokenizer(text).input_ids), limit)
        embeds, mask, _, _ = view.encode_prompt(
            text,
            do_classifier_free_guidance=False,
            max_sequence_length=limit,
            clean_caption=_chosen(ctx, CLEAN),
        )
        return Embeddings({"prompt_embeds": embeds, "prompt_attention_mask": mask})

    def call(self, ctx: "StageContext", *rest: Any) -> dict[str, Any]:
        binning = {BINNING: _chosen(ctx, BINNING)}
        return {**super().call(ctx, *rest), **binning, "negative_prompt": None}  # its default "" conflicts with embeds

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are `(outputs, 4, height / 8, width / 8)` of the size that the loop ran at."""
        view, generators = self.denoise_view(ctx), ctx.generators()
        arguments = self.call(ctx, view, prompt_embeds, negative_prompt_embeds, generators)
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        with scheduler_steps(ctx, view.scheduler):
            (data,) = view(**arguments)
        height, width = self.size_made(view, arguments, data)
        states = tuple(generator.get_state() for generator in generators)
        return Latents(data=data, height=height, width=width, num_frames=1, generator_states=states)

    def size_made(self, view: Any, arguments: Any, data: "Tensor") -> tuple[int, int]:
        """The size asked for, else the one that the checkpoint was trained on."""
        default = int(view.transformer.config.sample_size) * int(view.vae_scale_factor)
        return arguments.get("height", default), arguments.get("width", default)

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        view = self.denoise_view(ctx)
        data = latents.data.to(ctx.device, dtype=view.vae.dtype)
        image = view.vae.decode(data / view.vae.config.scaling_factor, return_dict=False)[0]
        if _chosen(ctx, BINNING):
            image = view.image_processor.resize_and_crop_tensor(image, latents.width, latents.height)
        return pictures(view, image)


def _chosen(ctx: "StageContext", name: str) -> Any:
    """What `pipeline.args` says, else the default of the pipeline's own call."""
    if name in ctx.arguments:
        return ctx.arguments[name]
    return inspect.signature(type(ctx.pipeline_view()).__call__).parameters[name].default
