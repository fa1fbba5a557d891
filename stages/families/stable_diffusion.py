"""Family `stable_diffusion`: Stable Diffusion 1.x and 2.x, by the pipeline's own methods. No torch at import."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family import Family
from framework.runtime.family_calls import argument, embedding_arguments, given, not_multiples, step_reporter
from framework.spec import RequestSpec
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext

OTHERS = ("text_encoder", "tokenizer", "safety_checker", "feature_extractor")
MULTIPLE = 8  # what the pipeline's own check asks of height and width


@register_family("stable_diffusion")
class StableDiffusionFamily(Family):
    """Text to image. The safety checker is a stage of its own, `safety_check`; a graph without it runs none."""

    tasks = ("text to image",)
    pipeline_classes = ("StableDiffusionPipeline",)
    encoders = ("text_encoder",)
    tokenizers = ("tokenizer",)
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read
    request_keys: Mapping[str, str | None] = MappingProxyType(
        dict.fromkeys(("height", "width", "num_inference_steps", "guidance_scale"))
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline cannot make."""
        return list(not_multiples(request, MULTIPLE))

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def max_length(self, ctx: "StageContext") -> int:
        return int(ctx.pipeline_view().tokenizer.model_max_length)

    def encode(self, ctx: "StageContext", text: str) -> "Tensor":
        """CLIP's last layer, `(1, 77, width)`."""
        view = ctx.pipeline_view()
        num_tokens, limit = len(view.tokenizer(text).input_ids), self.max_length(ctx)
        if num_tokens > limit:
            ctx.note(f"a text of {num_tokens} tokens is cut to the {limit} that CLIP reads; the rest is not read")
        embedding, _ = view.encode_prompt(
            prompt=text, device=ctx.device, num_images_per_prompt=1, do_classifier_free_guidance=False
        )
        found: Tensor = embedding
        return found

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are `(outputs, 4, height / 8, width / 8)`, scaled as the denoiser sees them."""
        view, generators = _view(ctx), ctx.generators()
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        data, _ = view(
            **embedding_arguments(prompt_embeds, negative_prompt_embeds, len(generators)),
            **given(ctx, "height", "width", "num_inference_steps", "guidance_scale"),
            generator=generators,
            output_type="latent",
            return_dict=False,
            callback_on_step_end=step_reporter(ctx),
        )
        return Latents(
            data=data,
            height=int(data.shape[-2]) * view.vae_scale_factor,
            width=int(data.shape[-1]) * view.vae_scale_factor,
            num_frames=1,
            generator_states=tuple(generator.get_state() for generator in generators),
        )

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """The generators go on from the loop: a consistency decoder draws from them, the usual VAE does not."""
        view = _view(ctx)
        vae = view.vae
        data = latents.data.to(ctx.device, dtype=vae.dtype)
        generators = ctx.generators(latents.generator_states)
        image = vae.decode(data / vae.config.scaling_factor, return_dict=False, generator=generators)[0]
        pictures = view.image_processor.postprocess(image, output_type="pt")
        return Frames(pictures.permute(0, 2, 3, 1).unsqueeze(1).float().cpu().contiguous())


def _view(ctx: "StageContext") -> Any:
    return ctx.pipeline_view(without=OTHERS)
