"""Family `qwen_image_edit`: Qwen-Image-Edit and Edit-2509 (Plus), by the pipelines' own methods. No torch at import.

The language model sees the picture too, so an embedding belongs to a text and a picture. `request.guidance_scale` is
what the model card calls `true_cfg_scale`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.outputs.hashing import file_sha256
from framework.registry import register_family
from framework.runtime.family_calls import picture_of
from framework.runtime.image_family import IMAGE_KEYS
from framework.values import Embeddings
from stages.families.qwen_image import QwenImageFamily

if TYPE_CHECKING:
    from framework.runtime.context import StageContext

AREA = 1024 * 1024  # pixels of a result whose size is not asked for; its shape is the picture's


@register_family("qwen_image_edit")
class QwenImageEditFamily(QwenImageFamily):
    """One picture, `request.image`; the pipeline scales it to the areas that the model was trained on."""

    tasks = ("image to image",)
    pipeline_classes = ("QwenImageEditPipeline", "QwenImageEditPlusPipeline")
    tokenizers = ("tokenizer", "processor")
    request_keys: Mapping[str, str | None] = MappingProxyType(
        {**{key: None for key in IMAGE_KEYS if key != "max_sequence_length"}, "image": None}  # it cuts no text
    )
    longest_text = None
    needs_picture = True
    widest = 100  # beyond about 576 to 1 the picture for the language model would be no pixel high

    def text_identity(self, ctx: "StageContext") -> str:
        return file_sha256(Path(ctx.request.image or "").expanduser())

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """Let the pipeline scale the picture and encode both; `(1, tokens, width)`, the picture's tokens among them."""
        from framework.runtime.preparing import record

        view = ctx.pipeline_view()
        arguments = {"image": picture_of(ctx), "prompt": text, "true_cfg_scale": 1.0}
        embeds, mask = record(view, arguments, (), ("encode_prompt",)).prepared["encode_prompt"]
        return Embeddings({"prompt_embeds": embeds, "prompt_embeds_mask": mask})

    def size(self, ctx: "StageContext", view: Any) -> dict[str, int]:
        """Return the request's size, else one of a million pixels in the picture's shape."""
        picture = picture_of(ctx)
        width, height = sys.modules[type(view).__module__].calculate_dimensions(AREA, picture.width / picture.height)[
            :2
        ]
        return {"height": ctx.request.height or height, "width": ctx.request.width or width}
