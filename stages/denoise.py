"""Stage `denoise`: the pipeline's own loop, from embeddings to latents. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("denoise")
class Denoise:
    """Runs the denoiser, or its phases one after the other; each is in use from its first call on."""

    inputs = ("prompt_embeds",)
    optional_inputs = ("negative_prompt_embeds",)
    outputs = ("latents",)
    component_uses = (ComponentUse(component="transformer", start_at_stage_entry=False),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        from torch import Tensor

        prompt_embeds = ctx.values["prompt_embeds"]
        negative = ctx.values["negative_prompt_embeds"]
        assert isinstance(prompt_embeds, Tensor)
        assert negative is None or isinstance(negative, Tensor)
        with ctx.uses_at_call():
            return {"latents": ctx.family.denoise(ctx, prompt_embeds, negative)}
