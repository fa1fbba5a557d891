"""Family `sd3`: Stable Diffusion 3 and 3.5, by `StableDiffusion3Pipeline`'s own methods. No torch at import.

A text goes through all three encoders, and the negative text through all three again: their uses overlap.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family_calls import argument, note_cut, spatial_factor
from framework.runtime.image_family import ImageFamily
from framework.spec import RequestSpec
from framework.values import Embeddings

if TYPE_CHECKING:
    from framework.runtime.context import StageContext


@register_family("sd3")
class StableDiffusion3Family(ImageFamily):
    """The joint embedding travels with the pooled one of the two CLIPs; T5 may be left out of the checkpoint."""

    pipeline_classes = ("StableDiffusion3Pipeline",)
    encoders = ("text_encoder", "text_encoder_2", "text_encoder_3")
    tokenizers = ("tokenizer", "tokenizer_2", "tokenizer_3")
    longest_text = 512
    negative_prompt_above = 1.0

    def multiple(self, configs: Mapping[str, Mapping[str, Any]]) -> int:
        return spatial_factor(configs.get("vae", {})) * int(configs.get("transformer", {}).get("patch_size", 2))

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse also sizes beyond the table of positions, which would end the run in its first step."""
        problems = super().check_request(request, options, configs)
        positions = configs.get("transformer", {}).get("pos_embed_max_size")
        longest = None if positions is None else positions * self.multiple(configs)
        for name, value in (("height", request.height), ("width", request.width)):
            if longest is not None and value is not None and value > longest:
                reason = f"{value} is more than this checkpoint has positions for"
                problems.append(Problem(f"request.{name}", reason, hint=f"at most {longest}"))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > 1

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """Both CLIPs and T5 one after the other, `(1, 77 + max_length, width)`, and the pooled `(1, width)`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        if view.tokenizer_3 is not None:
            note_cut(ctx, len(view.tokenizer_3(text).input_ids), limit)
        embeds, _, pooled, _ = view.encode_prompt(
            prompt=text,
            prompt_2=None,
            prompt_3=None,
            do_classifier_free_guidance=False,
            num_images_per_prompt=1,
            max_sequence_length=limit,
        )
        return Embeddings({"prompt_embeds": embeds, "pooled_prompt_embeds": pooled})
