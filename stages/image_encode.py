"""Stage `image_encode`: the request's picture as the image encoder sees it. No torch at import."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("image_encode")
class ImageEncode:
    """Writes one embedding of the picture for all outputs of a request."""

    inputs: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    outputs = ("image_embeds",)
    component_uses = (ComponentUse(component="image_encoder", start_at_stage_entry=False),)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        with ctx.uses_at_call():
            return {"image_embeds": ctx.family.encode_image(ctx)}
