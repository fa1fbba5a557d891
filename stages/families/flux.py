"""Families `flux` and `flux_kontext`: FLUX.1 dev, schnell and Kontext, by the pipelines' methods. No torch at import.

`request.guidance_scale` is the guidance that the model itself was given (the card's figure; schnell has none). True
classifier-free guidance, off in diffusers as here, is asked for by `request.guidance_scale_2` above 1; only then is a
negative prompt read, and the denoiser runs twice a step.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family_calls import given, note_cut
from framework.runtime.image_family import IMAGE_KEYS, PackedImageFamily
from framework.spec import RequestSpec
from framework.values import Embeddings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

TRUE_GUIDANCE_ABOVE = 1.0


@register_family("flux")
class FluxFamily(PackedImageFamily):
    """The embedding of T5 and the pooled one of CLIP travel together; without the latter a negative text is ignored."""

    pipeline_classes: tuple[str, ...] = ("FluxPipeline",)
    encoders = ("text_encoder", "text_encoder_2")
    tokenizers = ("tokenizer", "tokenizer_2")
    request_keys: Mapping[str, str | None] = MappingProxyType({**IMAGE_KEYS, "guidance_scale_2": None})
    longest_text = 512
    negative_prompt_above = TRUE_GUIDANCE_ABOVE
    negative_prompt_scale = "guidance_scale_2"
    negative_prompt_by_default = False

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        problems = super().check_request(request, options, configs)
        embedded = configs.get("transformer", {}).get("guidance_embeds", True)
        if not embedded and request.guidance_scale is not None and request.guidance_scale > 1:
            reason = "this checkpoint was distilled without guidance, so nothing reads it"
            problems.append(Problem("request.guidance_scale", reason, hint="remove it, or write 0"))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        return (ctx.request.guidance_scale_2 or 0.0) > TRUE_GUIDANCE_ABOVE

    def guidance(self, ctx: "StageContext") -> dict[str, Any]:
        true_guidance = {"true_cfg_scale": ctx.request.guidance_scale_2} if self.needs_negative(ctx) else {}
        return {**given(ctx, "guidance_scale"), **true_guidance}

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """T5's embedding `(1, max_length, width)` and CLIP's pooled one `(1, width)`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        note_cut(ctx, len(view.tokenizer_2(text).input_ids), limit)
        embeds, pooled, _ = view.encode_prompt(prompt=text, num_images_per_prompt=1, max_sequence_length=limit)
        return Embeddings({"prompt_embeds": embeds, "pooled_prompt_embeds": pooled})


@register_family("flux_kontext")
class FluxKontextFamily(FluxFamily):
    """`request.image` is scaled to the nearest size that Kontext was trained on, as the pipeline does.

    The size asked for is the size made: the pipeline alone would scale it to an area of 1024 x 1024.
    """

    tasks = ("text to image", "image to image")
    pipeline_classes = ("FluxKontextPipeline",)
    request_keys: Mapping[str, str | None] = MappingProxyType({**FluxFamily.request_keys, "image": None})
    least_side = 16  # the pipeline rounds the size of a picture down to whole patches before it takes its shape

    def call(
        self,
        ctx: "StageContext",
        view: Any,
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        arguments = super().call(ctx, view, prompt_embeds, negative_prompt_embeds, generators)
        return {**arguments, "max_area": arguments["height"] * arguments["width"]}
