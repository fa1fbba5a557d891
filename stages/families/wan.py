"""Family `wan`: Wan 2.1, Wan 2.2 with two experts, and TI2V-5B, by `WanPipeline`'s own methods. No torch at import."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem, StageError
from framework.loading.source import SOURCE_KEY
from framework.registry import register_family
from framework.runtime.family import Family
from framework.runtime.family_calls import argument, embedding_arguments, given, not_multiples, step_reporter, too_long
from framework.spec import RequestSpec
from framework.values import Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

LEAST_MULTIPLE = 16  # what WanPipeline's own check asks of height and width
PATCH = 2
LONGEST_TEXT = 512  # tokens that the model was trained on, and what WanPipeline pads every text to


@register_family("wan")
class WanFamily(Family):
    """Arguments and recipe of `WanPipeline`; what a request leaves open is left to the pipeline's own defaults."""

    tasks: tuple[str, ...] = ("text to video",)
    pipeline_classes: tuple[str, ...] = ("WanPipeline",)
    encoders = ("text_encoder",)
    tokenizers = ("tokenizer",)
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read
    request_keys: Mapping[str, str | None] = MappingProxyType(
        {
            **dict.fromkeys(("height", "width", "num_frames", "num_inference_steps", "guidance_scale")),
            **dict.fromkeys(("max_sequence_length", "fps")),
            "guidance_scale_2": "transformer_2",
        }
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline would round with a warning, and a second guidance that nothing reads."""
        vae = configs.get("vae", {})
        multiple = math.lcm(LEAST_MULTIPLE, PATCH * vae.get("scale_factor_spatial", 8))
        problems = [*not_multiples(request, multiple), *too_long(request, LONGEST_TEXT), *_odd_boundary(options)]
        stride = vae.get("scale_factor_temporal", 4)
        frames = request.num_frames
        if frames is not None and (frames < 1 or (frames - 1) % stride):
            near = max(1, round((frames - 1) / stride) * stride + 1)
            problems.append(
                Problem("request.num_frames", f"{frames} is not 1 more than a multiple of {stride}", hint=f"try {near}")
            )
        if request.guidance_scale_2 is not None and options.get("boundary_ratio") is None:
            reason = "this checkpoint has no second expert, so nothing reads it"
            problems.append(Problem("request.guidance_scale_2", reason))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def max_length(self, ctx: "StageContext") -> int:
        return int(argument(ctx, "max_sequence_length"))

    def encode(self, ctx: "StageContext", text: str) -> "Tensor":
        """Encode one text alone, as `WanPipeline` does for each of the two; `(1, max_length, width)`."""
        view = ctx.pipeline_view()
        num_tokens, limit = len(view.tokenizer(text).input_ids), self.max_length(ctx)
        if num_tokens > limit:
            ctx.note(f"a text of {num_tokens} tokens is cut to max_sequence_length={limit}; the rest is not read")
        embedding, _ = view.encode_prompt(
            prompt=text,
            do_classifier_free_guidance=False,
            num_videos_per_prompt=1,
            max_sequence_length=limit,
        )
        found: Tensor = embedding
        return found

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are `(outputs, channels, latent frames, height, width)`, float32, normalised."""
        view = denoise_view(ctx)
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        generators = ctx.generators()
        arguments = call_arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        return latents_of(view, view(**arguments, callback_on_step_end=step_reporter(ctx)), generators)

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """`WanPipeline`'s own recipe, in its own order of operations: dividing by 1/std is not multiplying by std."""
        import torch

        view = ctx.pipeline_view(without=("text_encoder", "tokenizer"))
        vae = view.vae
        data = latents.data.to(ctx.device, dtype=vae.dtype)
        shape = (1, vae.config.z_dim, 1, 1, 1)
        mean = torch.tensor(vae.config.latents_mean).view(shape).to(data.device, data.dtype)
        inverse_std = 1.0 / torch.tensor(vae.config.latents_std).view(shape).to(data.device, data.dtype)
        video = vae.decode(data / inverse_std + mean, return_dict=False)[0]
        pictures = view.video_processor.postprocess_video(video, output_type="pt")
        return Frames(pictures.permute(0, 1, 3, 4, 2).float().cpu().contiguous(), ctx.request.fps)


def _odd_boundary(options: Mapping[str, Any]) -> Iterator[Problem]:
    """The pipeline would only find out at the first step, with all weights loaded."""
    boundary = options.get("boundary_ratio")
    if boundary is not None and (isinstance(boundary, bool) or not isinstance(boundary, int | float)):
        yield Problem(SOURCE_KEY, f"its model_index.json has the boundary_ratio {boundary!r}, which is no number")


def denoise_view(ctx: "StageContext") -> Any:
    """The pipeline without its encoder. Raises `StageError` when a step would need an expert that no use declares."""
    view = ctx.pipeline_view(without=("text_encoder", "tokenizer"))
    if view.config.boundary_ratio is not None and view.transformer_2 is None:
        raise StageError(f"stage '{ctx.stage}' needs 'transformer_2' below the boundary; declare a use of it")
    return view


def call_arguments(
    ctx: "StageContext",
    prompt_embeds: "Tensor | Embeddings",
    negative_prompt_embeds: "Tensor | Embeddings | None",
    generators: "Sequence[Generator]",
) -> dict[str, Any]:
    """Return the arguments of the pipeline's call, from embeddings to latents."""
    return {
        **embedding_arguments(prompt_embeds, negative_prompt_embeds, len(generators)),
        **given(ctx, "height", "width", "num_frames", "num_inference_steps", "guidance_scale", "guidance_scale_2"),
        "generator": list(generators),
        "output_type": "latent",
        "return_dict": False,
    }


def latents_of(view: Any, returned: "tuple[Tensor]", generators: "Sequence[Generator]") -> Latents:
    """Return what the call gave with the sizes in pixels and frames that it stands for."""
    (data,) = returned
    return Latents(
        data=data,
        height=int(data.shape[-2]) * view.vae_scale_factor_spatial,
        width=int(data.shape[-1]) * view.vae_scale_factor_spatial,
        num_frames=(int(data.shape[2]) - 1) * view.vae_scale_factor_temporal + 1,
        generator_states=tuple(generator.get_state() for generator in generators),
    )
