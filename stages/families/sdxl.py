"""Families `sdxl`, `sdxl_img2img`, `sdxl_inpaint`: Stable Diffusion XL from text, pictures, masks. No torch at import.

A checkpoint indexed as text to image serves all three: diffusers' other classes are put over the same components.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family import Family
from framework.runtime.family_calls import (
    argument,
    condition_of,
    embedding_arguments,
    given,
    not_multiples,
    picture_problems,
    step_reporter,
)
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

TEXT_PARTS = ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
CLASSES = ("StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline")
LEAST_MULTIPLE = 8  # what the pipelines' own checks ask of height and width


@register_family("sdxl")
class SDXLFamily(Family):
    """Text to image. CLIP reads 77 tokens; without a negative prompt the base model's is zeros, as its config says."""

    tasks: tuple[str, ...] = ("text to image",)
    pipeline_classes = CLASSES
    view_class: str | None = "StableDiffusionXLPipeline"
    encoders = ("text_encoder", "text_encoder_2")
    tokenizers = ("tokenizer", "tokenizer_2")
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read
    sizes: tuple[str, ...] = ("height", "width")
    request_keys: Mapping[str, str | None] = MappingProxyType(
        dict.fromkeys(("height", "width", "num_inference_steps", "guidance_scale"))
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline cannot make."""
        return list(not_multiples(request, _multiple(configs))) if self.sizes else []

    def needs_negative(self, ctx: "StageContext") -> bool:
        """An absent negative prompt is zeros, not an encoded empty text, where the checkpoint says so."""
        if float(argument(ctx, "guidance_scale")) <= self.negative_prompt_above:
            return False
        return ctx.request.negative_prompt is not None or not ctx.pipeline_view().config.force_zeros_for_empty_prompt

    def max_length(self, ctx: "StageContext") -> int:
        return int(ctx.pipeline_view().tokenizer_2.model_max_length)

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """Both encoders' last but one layers side by side, `(1, 77, width)`, and the second one's pooled text."""
        view = ctx.pipeline_view()
        num_tokens, limit = len(view.tokenizer_2(text).input_ids), self.max_length(ctx)
        if num_tokens > limit:
            ctx.note(f"a text of {num_tokens} tokens is cut to the {limit} that CLIP reads; the rest is not read")
        embeds, _, pooled, _ = view.encode_prompt(prompt=text, do_classifier_free_guidance=False)
        return Embeddings({"prompt_embeds": embeds, "pooled_prompt_embeds": pooled})

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are `(outputs, 4, height / 8, width / 8)`, scaled as the denoiser sees them."""
        view, generators = denoise_view(ctx), ctx.generators()
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        arguments = self.arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        return _latents(view, view(**arguments, callback_on_step_end=step_reporter(ctx)), generators)

    def arguments(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        """Return the arguments of the pipeline's call, from embeddings to latents."""
        guided = float(argument(ctx, "guidance_scale")) > self.negative_prompt_above
        if negative_prompt_embeds is None and guided:
            negative_prompt_embeds = _zeros(prompt_embeds)
        return {
            **embedding_arguments(prompt_embeds, negative_prompt_embeds, len(generators)),
            **given(ctx, *self.sizes, "num_inference_steps", "guidance_scale"),
            "generator": list(generators),
            "output_type": "latent",
        }

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """The pipeline's own recipe, with the mean and deviation of the VAE's config where it has them."""
        import torch

        view = denoise_view(ctx)
        vae, data = view.vae, latents.data.to(ctx.device)
        if vae.dtype == torch.float16 and vae.config.force_upcast:
            ctx.note("this VAE overflows in float16; set pipeline.components.vae.dtype=float32")
        mean, std = (getattr(vae.config, name, None) for name in ("latents_mean", "latents_std"))
        if mean is not None and std is not None:
            mean, std = (torch.tensor(value).view(1, 4, 1, 1).to(data.device, data.dtype) for value in (mean, std))
            data = data * std / vae.config.scaling_factor + mean
        else:
            data = data / vae.config.scaling_factor
        image = vae.decode(data.to(vae.dtype), return_dict=False)[0]
        pictures = view.image_processor.postprocess(image, output_type="pt")
        return Frames(pictures.permute(0, 2, 3, 1).unsqueeze(1).float().cpu().contiguous())


@register_family("sdxl_img2img")
class SDXLImageToImageFamily(SDXLFamily):
    """A picture changed by a text: `request.strength` says how much of the loop is run. The picture gives the size."""

    tasks = ("image to image",)
    view_class = "StableDiffusionXLImg2ImgPipeline"
    sizes: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ("image",)
    prepared: tuple[str, ...] = ("prepare_latents",)
    request_keys: Mapping[str, str | None] = MappingProxyType(
        dict.fromkeys(("image", "strength", "num_inference_steps", "guidance_scale"))
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse pictures that cannot be read, and a strength that leaves no step."""
        problems = super().check_request(request, options, configs)
        problems += [problem for name in self.pictures for problem in picture_problems(request, name)]
        steps = request.num_inference_steps
        if request.strength is not None and steps is not None and int(steps * request.strength) < 1:
            reason = f"{request.strength} of {steps} steps leaves none to run"
            problems.append(Problem("request.strength", reason, hint=f"at least {1 / steps:.2g}"))
        return problems

    def condition(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Condition:
        """The noised picture (and the mask), as the pipeline's preparing methods return them."""
        from framework.runtime.preparing import kept_dtype, record

        view, generators = denoise_view(ctx), ctx.generators()
        arguments = self.arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        with kept_dtype(view.vae):
            return record(view, arguments, generators, self.prepared)

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        from framework.runtime.preparing import replayed

        condition = condition_of(ctx)
        view, generators = denoise_view(ctx), ctx.generators(condition.generator_states)
        steps = int(argument(ctx, "num_inference_steps"))
        ctx.expect_steps(min(int(steps * float(argument(ctx, "strength"))), steps))
        arguments = self.arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        with replayed(view, condition, ctx.device):
            return _latents(view, view(**arguments, callback_on_step_end=step_reporter(ctx)), generators)

    def arguments(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        from framework.runtime.pictures import read_picture

        image = read_picture(ctx.request.image or "")
        shared = super().arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        return {**shared, **given(ctx, "strength"), "image": image}


@register_family("sdxl_inpaint")
class SDXLInpaintFamily(SDXLImageToImageFamily):
    """A picture painted anew where `request.mask` is white."""

    tasks = ("inpainting",)
    view_class = "StableDiffusionXLInpaintPipeline"
    sizes = ("height", "width")
    pictures = ("image", "mask")
    prepared = ("prepare_latents", "prepare_mask_latents")
    request_keys: Mapping[str, str | None] = MappingProxyType(
        dict.fromkeys(("image", "mask", "strength", "height", "width", "num_inference_steps", "guidance_scale"))
    )

    def arguments(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        from framework.runtime.pictures import read_picture

        mask = read_picture(ctx.request.mask or "", "request.mask")
        return {**super().arguments(ctx, prompt_embeds, negative_prompt_embeds, generators), "mask_image": mask}


def denoise_view(ctx: "StageContext") -> Any:
    """The pipeline without what only reads text."""
    return ctx.pipeline_view(without=TEXT_PARTS)


def _latents(view: Any, returned: Any, generators: "Sequence[Generator]") -> Latents:
    data = returned.images
    return Latents(
        data=data,
        height=int(data.shape[-2]) * view.vae_scale_factor,
        width=int(data.shape[-1]) * view.vae_scale_factor,
        num_frames=1,
        generator_states=tuple(generator.get_state() for generator in generators),
    )


def _zeros(embedding: "Tensor | Embeddings") -> Embeddings:
    import torch

    assert isinstance(embedding, Embeddings), "this family encodes to embeddings with a pooled text"
    tensors = {name: part for name, part in embedding.parts.items() if isinstance(part, torch.Tensor)}
    return Embeddings({name: torch.zeros_like(part) for name, part in tensors.items()})


def _multiple(configs: Mapping[str, Mapping[str, Any]]) -> int:
    levels = len(configs.get("vae", {}).get("block_out_channels", (0,) * 4))
    return max(LEAST_MULTIPLE, int(2 ** (levels - 1)))
