"""Family `z_image`: Z-Image and Z-Image-Turbo, by `ZImagePipeline`'s own methods. No torch at import.

Guidance counts from 0 here: 0 is none, and g does what g + 1 does in other families. Turbo wants 0.
"""

from typing import TYPE_CHECKING

from framework.registry import register_family
from framework.runtime.family_calls import argument, note_cut
from framework.runtime.image_family import ImageFamily
from framework.values import Embeddings

if TYPE_CHECKING:
    from framework.runtime.context import StageContext


@register_family("z_image")
class ZImageFamily(ImageFamily):
    """An embedding is a list: texts keep their own length and have no mask."""

    pipeline_classes = ("ZImagePipeline",)
    repeats_texts = True
    negative_prompt_above = 0.0

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > 0

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """The last but one layer of the language model for the tokens that there are, `[(tokens, width)]`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        chat = [{"role": "user", "content": text}]
        options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": True}
        note_cut(ctx, len(view.tokenizer(view.tokenizer.apply_chat_template(chat, **options)).input_ids), limit)
        embeds, _ = view.encode_prompt(prompt=text, do_classifier_free_guidance=False, max_sequence_length=limit)
        return Embeddings({"prompt_embeds": embeds})
