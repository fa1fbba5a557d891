"""Family `qwen_image`: Qwen-Image, by `QwenImagePipeline`'s own methods. No torch at import.

`request.guidance_scale` is what the model card calls `true_cfg_scale`; the pipeline's own argument of the name is for
distilled checkpoints that nobody has published, and is not used.
"""

from typing import TYPE_CHECKING, Any

from framework.registry import register_family
from framework.runtime.family_calls import note_cut
from framework.runtime.image_family import PackedImageFamily, pictures
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

GUIDANCE_ABOVE = 1.0
GUIDANCE = 4.0  # the pipeline's default


@register_family("qwen_image")
class QwenImageFamily(PackedImageFamily):
    """An embedding has a mask, or none where all its tokens count.

    A guidance that is asked for guides, with an empty negative text where none is given. Where neither is said,
    nothing does, as in diffusers.
    """

    pipeline_classes: tuple[str, ...] = ("QwenImagePipeline",)
    repeats_texts = True
    longest_text: int | None = 1024
    negative_prompt_above = GUIDANCE_ABOVE

    def multiple(self, configs: "Mapping[str, Mapping[str, Any]]") -> int:
        """Pixels; the VAE halves space once for each entry of a list that its config calls by time."""
        halvings = configs.get("vae", {}).get("temperal_downsample", (False, True, True))
        return int(2 * 2 ** len(halvings))

    def needs_negative(self, ctx: "StageContext") -> bool:
        said = ctx.request.guidance_scale is not None or ctx.request.negative_prompt is not None
        return said and _scale(ctx) > GUIDANCE_ABOVE

    def guidance(self, ctx: "StageContext") -> dict[str, Any]:
        return {"true_cfg_scale": _scale(ctx) if self.needs_negative(ctx) else 1.0}

    def call(
        self,
        ctx: "StageContext",
        view: Any,
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        """An absent mask is given as one of ones, which the pipeline drops; it would warn about none."""
        arguments = super().call(ctx, view, prompt_embeds, negative_prompt_embeds, generators)
        for name in ("prompt_embeds", "negative_prompt_embeds"):
            if name in arguments:
                embeds: Tensor = arguments[name]
                arguments.setdefault(f"{name}_mask", embeds.new_ones(embeds.shape[:2]).long())
        return arguments

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """The language model's last layer without the template's head, `(1, tokens, width)`."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        tokens = view.tokenizer(view.prompt_template_encode.format(text)).input_ids
        note_cut(ctx, len(tokens) - view.prompt_template_encode_start_idx, limit)
        embeds, mask = view.encode_prompt(prompt=text, num_images_per_prompt=1, max_sequence_length=limit)
        return Embeddings({"prompt_embeds": embeds, "prompt_embeds_mask": mask})

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """The pipeline's own recipe in its own order: dividing by 1/std is not multiplying by std. One frame."""
        import torch

        view = self.denoise_view(ctx)
        vae = view.vae
        data: Tensor = self.unpacked(view, latents).to(ctx.device, dtype=vae.dtype)
        shape = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(shape).to(data.device, data.dtype)
        inverse_std = 1.0 / torch.tensor(vae.config.latents_std).view(shape).to(data.device, data.dtype)
        return pictures(view, vae.decode(data / inverse_std + mean, return_dict=False)[0][:, :, 0])


def _scale(ctx: "StageContext") -> float:
    return GUIDANCE if ctx.request.guidance_scale is None else ctx.request.guidance_scale
