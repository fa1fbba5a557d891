"""Family `flux2_klein`: FLUX.2 Klein, distilled and base, with or without a picture. No torch at import.

A distilled checkpoint reads no guidance and no negative prompt; a base one encodes an empty negative text by itself,
and reads the request's where there is one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family_calls import argument, note_cut
from framework.runtime.image_family import IMAGE_KEYS, ImageFamily, pictures
from framework.spec import RequestSpec
from framework.values import Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext


@register_family("flux2_klein")
class Flux2KleinFamily(ImageFamily):
    """`request.image` is used in its own size, cut to whole patches and scaled down where above 1024 x 1024."""

    tasks = ("text to image", "image to image")
    pipeline_classes = ("Flux2KleinPipeline",)
    request_keys: Mapping[str, str | None] = MappingProxyType({**IMAGE_KEYS, "image": None})
    repeats_texts = True
    least_side, widest = 64, 8  # what the pipeline's own check asks of a picture
    negative_prompt_above = 1.0

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        problems = super().check_request(request, options, configs)
        if options.get("is_distilled"):
            reason = "this checkpoint is distilled, so nothing reads it"
            if request.guidance_scale is not None and request.guidance_scale > 1:
                problems.append(Problem("request.guidance_scale", reason, hint="remove it, or write 1"))
            if request.negative_prompt:
                problems.append(Problem("negative_prompt", reason, hint="remove it"))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > 1 and not ctx.pipeline_view().config.is_distilled

    def guidance(self, ctx: "StageContext") -> dict[str, Any]:
        """A distilled checkpoint gets none, for its pipeline would warn that its own default is ignored."""
        return {"guidance_scale": argument(ctx, "guidance_scale") if self.needs_negative(ctx) else 1.0}

    def prepares(self, ctx: "StageContext") -> tuple[str, ...]:
        return ("prepare_latents",) if ctx.request.image is None else ("prepare_latents", "prepare_image_latents")

    def encode(self, ctx: "StageContext", text: str) -> "Tensor":
        """Three layers of the language model side by side, `(1, max_length, width)`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        chat = [{"role": "user", "content": text}]
        options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        note_cut(ctx, len(view.tokenizer(view.tokenizer.apply_chat_template(chat, **options)).input_ids), limit)
        embeds, _ = view.encode_prompt(prompt=text, num_images_per_prompt=1, max_sequence_length=limit)
        found: Tensor = embeds
        return found

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """Klein's latents come unpacked and denormalised, unlike those of FLUX.2 under the same name."""
        view = self.denoise_view(ctx)
        data = latents.data.to(ctx.device, dtype=view.vae.dtype)
        return pictures(view, view.vae.decode(data, return_dict=False)[0])
