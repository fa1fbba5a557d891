"""Stage `decode`: latents to pictures by the family's recipe. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse
from framework.values import Latents

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("decode")
class Decode:
    """Holds the VAE for the whole stage and looks at what its decoder returns before it is clamped."""

    inputs = ("latents",)
    optional_inputs: tuple[str, ...] = ()
    outputs = ("frames",)
    component_uses = (ComponentUse(component="vae", memory_intensive=True),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        latents = ctx.values["latents"]
        assert isinstance(latents, Latents)
        with ctx.use("vae") as vae, ctx.watch_outputs(getattr(vae, "decoder", None), "the VAE's decoder"):
            return {"frames": ctx.family.decode(ctx, latents)}
