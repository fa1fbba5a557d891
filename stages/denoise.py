"""Stage `denoise`: the pipeline's own loop, from embeddings to latents. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.runtime.family_calls import text_embeddings
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("denoise")
class Denoise:
    """Runs the denoiser, or its phases one after the other; each is in use from its first call on."""

    inputs = ("prompt_embeds",)
    optional_inputs = ("negative_prompt_embeds", "image_embeds", "condition")
    outputs = ("latents",)
    component_uses = (ComponentUse(component="transformer", start_at_stage_entry=False),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        prompt_embeds, negative = text_embeddings(ctx)
        with ctx.uses_at_call():
            return {"latents": ctx.family.denoise(ctx, prompt_embeds, negative)}
