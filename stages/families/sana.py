"""Family `sana`: Sana by `SanaPipeline`'s own methods. No torch at import.

The size asked for is made from the nearest one that Sana was trained on, then scaled and cut, as the pipeline does;
`pipeline.args.use_resolution_binning=false` makes it directly.
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.registry import register_family
from framework.runtime.family_calls import argument, given, note_cut
from framework.runtime.image_family import ImageFamily, pictures
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext

INSTRUCTION = "complex_human_instruction"
BINNING = "use_resolution_binning"


@register_family("sana")
class SanaFamily(ImageFamily):
    """A positive text is put behind the pipeline's own instruction, a negative one stands alone."""

    pipeline_classes = ("SanaPipeline",)
    call_arguments = (BINNING, "clean_caption", INSTRUCTION)
    negative_differs = True
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read

    def multiple(self, configs: Mapping[str, Mapping[str, Any]]) -> int:
        return 32  # what the pipeline's own check asks of height and width

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def text_identity(self, ctx: "StageContext") -> str:
        return repr((_chosen(ctx, INSTRUCTION), _chosen(ctx, "clean_caption")))

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """The first token and the last `max_length - 1` of a text with the instruction, `(1, max_length, width)`."""
        view = ctx.pipeline_view()
        embeds, mask, _, _ = view.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            max_sequence_length=self.max_length(ctx),
            clean_caption=_chosen(ctx, "clean_caption"),
            complex_human_instruction=_chosen(ctx, INSTRUCTION),
        )
        return Embeddings({"prompt_embeds": embeds, "prompt_attention_mask": mask})

    def encode_negative(self, ctx: "StageContext", text: str) -> Embeddings:
        """The text without an instruction, as `encode_prompt` encodes a negative one."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        note_cut(ctx, len(view.tokenizer(text).input_ids), limit)
        embeds, mask = view._get_gemma_prompt_embeds(
            prompt=[text],
            device=ctx.device,
            dtype=view.text_encoder.dtype,
            clean_caption=_chosen(ctx, "clean_caption"),
            max_sequence_length=limit,
            complex_human_instruction=False,
        )
        return Embeddings({"prompt_embeds": embeds, "prompt_attention_mask": mask})

    def call(self, ctx: "StageContext", *rest: Any) -> dict[str, Any]:
        binning = {BINNING: _chosen(ctx, BINNING)}
        return {**super().call(ctx, *rest), **binning, "negative_prompt": None}  # its default "" conflicts with embeds

    def size_made(self, view: Any, arguments: Mapping[str, Any], data: "Tensor") -> tuple[int, int]:
        """The size asked for: the loop ran at the nearest trained one."""
        height, width = super().size_made(view, arguments, data)
        return arguments.get("height", height), arguments.get("width", width)

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        view = self.denoise_view(ctx)
        data = latents.data.to(ctx.device, dtype=view.vae.dtype)
        image = view.vae.decode(data / view.vae.config.scaling_factor, return_dict=False)[0]
        if _chosen(ctx, BINNING):
            image = view.image_processor.resize_and_crop_tensor(image, latents.width, latents.height)
        return pictures(view, image)

    def size(self, ctx: "StageContext", view: Any) -> dict[str, int]:
        """The pipeline's own 1024 x 1024 where nothing is said."""
        return {name: int(argument(ctx, name)) for name in ("height", "width")} | given(ctx, "height", "width")


def _chosen(ctx: "StageContext", name: str) -> Any:
    """What `pipeline.args` says, else the default of the pipeline's own call."""
    if name in ctx.arguments:
        return ctx.arguments[name]
    return inspect.signature(type(ctx.pipeline_view()).__call__).parameters[name].default
