"""Stage `condition`: the request's picture or video as latents, and the noise that goes with it. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.runtime.family_calls import text_embeddings
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("condition")
class Conditioning:
    """Runs the pipeline's own preparation, so that the VAE can leave before the loop begins."""

    inputs = ("prompt_embeds",)
    optional_inputs = ("negative_prompt_embeds", "image_embeds")
    outputs = ("condition",)
    component_uses = (ComponentUse(component="vae", start_at_stage_entry=False, memory_intensive=True),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        prompt_embeds, negative = text_embeddings(ctx)
        with ctx.uses_at_call():
            return {"condition": ctx.family.condition(ctx, prompt_embeds, negative)}
