"""Family `hunyuan_video15`: HunyuanVideo 1.5 by `HunyuanVideo15Pipeline`'s own methods. No torch at import.

Guidance is a component of its own, the guider; `request.guidance_scale` is written into a copy of it. The call has no
callback, so steps are counted at the scheduler.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family import Family
from framework.runtime.family_calls import argument, embedding_arguments, given, not_multiples, scheduler_steps
from framework.spec import RequestSpec
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext

TEXT_PARTS = ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")


@register_family("hunyuan_video15")
class HunyuanVideo15Family(Family):
    """The byte encoder reads only what stands in quotation marks, and is left alone where nothing does."""

    tasks = ("text to video",)
    pipeline_classes = ("HunyuanVideo15Pipeline",)
    encoders = ("text_encoder", "text_encoder_2")
    tokenizers = ("tokenizer", "tokenizer_2")
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read
    request_keys: Mapping[str, str | None] = MappingProxyType(
        dict.fromkeys(("height", "width", "num_frames", "num_inference_steps", "guidance_scale", "fps"))
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline would round down without a word."""
        vae = configs.get("vae", {})
        problems = list(not_multiples(request, int(vae.get("spatial_compression_ratio", 16))))
        stride, frames = int(vae.get("temporal_compression_ratio", 4)), request.num_frames
        if frames is not None and (frames < 1 or (frames - 1) % stride):
            near = max(1, round((frames - 1) / stride) * stride + 1)
            reason = f"{frames} is not 1 more than a multiple of {stride}"
            problems.append(Problem("request.num_frames", reason, hint=f"try {near}"))
        if (request.height is None) != (request.width is None):
            problems.append(Problem("request.height", "height and width go together", hint="set both or none"))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        guider = _guider(ctx)
        return bool(guider._enabled and guider.num_conditions > 1)

    def max_length(self, ctx: "StageContext") -> int:
        return int(ctx.pipeline_view().tokenizer_max_length)

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """Both encoders' embeddings, each with its mask: `(1, 1000, width)` and `(1, 256, width)`."""
        embeds, mask, embeds_2, mask_2 = ctx.pipeline_view().encode_prompt(prompt=text)
        return Embeddings(
            {
                "prompt_embeds": embeds,
                "prompt_embeds_mask": mask,
                "prompt_embeds_2": embeds_2,
                "prompt_embeds_mask_2": mask_2,
            }
        )

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are `(outputs, channels, latent frames, height, width)`, scaled as the denoiser sees them."""
        view, generators = ctx.pipeline_view(without=TEXT_PARTS), ctx.generators()
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        with _guided(ctx, view), scheduler_steps(ctx, view.scheduler):
            (data,) = view(
                **embedding_arguments(prompt_embeds, negative_prompt_embeds, len(generators)),
                **given(ctx, "height", "width", "num_frames", "num_inference_steps"),
                generator=generators,
                output_type="latent",
                return_dict=False,
            )
        return Latents(
            data=data,
            height=int(data.shape[-2]) * view.vae_scale_factor_spatial,
            width=int(data.shape[-1]) * view.vae_scale_factor_spatial,
            num_frames=(int(data.shape[2]) - 1) * view.vae_scale_factor_temporal + 1,
            generator_states=tuple(generator.get_state() for generator in generators),
        )

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """One video at a time: the VAE's attention mask serves no more than one."""
        import torch

        view = ctx.pipeline_view(without=TEXT_PARTS)
        data, scale = latents.data.to(ctx.device, dtype=view.vae.dtype), view.vae.config.scaling_factor
        ones = (data[index : index + 1] for index in range(len(data)))
        video = torch.cat([view.vae.decode(one / scale, return_dict=False)[0] for one in ones])
        pictures = view.video_processor.postprocess_video(video, output_type="pt")
        return Frames(pictures.permute(0, 1, 3, 4, 2).float().cpu().contiguous(), ctx.request.fps)


def _guider(ctx: "StageContext") -> Any:
    """The checkpoint's guider, or a copy of it with the request's guidance."""
    guider = ctx.pipeline_view().guider
    scale = ctx.request.guidance_scale
    return guider if scale is None else guider.new(guidance_scale=scale)


@contextmanager
def _guided(ctx: "StageContext", view: Any) -> Iterator[None]:
    """In this block the pipeline has the request's guider; views are shared by all requests."""
    before = view.guider
    view.guider = _guider(ctx)
    try:
        yield
    finally:
        view.guider = before
