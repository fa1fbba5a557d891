"""Family `wan`: Wan 2.1, Wan 2.2 with two experts, and TI2V-5B, by `WanPipeline`'s own methods. No torch at import."""

import inspect
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem, StageError
from framework.registry import register_family
from framework.spec import RequestSpec
from framework.values import Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext

LEAST_MULTIPLE = 16  # what WanPipeline's own check asks of height and width
PATCH = 2


@register_family("wan")
class WanFamily:
    """Arguments and recipe of `WanPipeline`; what a request leaves open is left to the pipeline's own defaults."""

    pipeline_classes = ("WanPipeline",)
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
        problems = [
            Problem(f"request.{name}", f"{value} is no multiple of {multiple}", hint=_nearest(value, multiple))
            for name, value in (("height", request.height), ("width", request.width))
            if value is not None and (value < multiple or value % multiple)
        ]
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
        return float(_argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def max_length(self, ctx: "StageContext") -> int:
        return int(_argument(ctx, "max_sequence_length"))

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

    def denoise(self, ctx: "StageContext", prompt_embeds: "Tensor", negative_prompt_embeds: "Tensor | None") -> Latents:
        """Latents are `(outputs, channels, latent frames, height, width)`, float32, normalised."""
        view = ctx.pipeline_view(without=("text_encoder", "tokenizer"))
        if view.config.boundary_ratio is not None and view.transformer_2 is None:
            raise StageError(f"stage '{ctx.stage}' needs 'transformer_2' below the boundary; declare a use of it")
        ctx.expect_steps(int(_argument(ctx, "num_inference_steps")))
        generators = ctx.generators()
        count = len(generators)
        (data,) = view(
            prompt_embeds=_repeat(prompt_embeds, count),
            negative_prompt_embeds=None if negative_prompt_embeds is None else _repeat(negative_prompt_embeds, count),
            generator=generators,
            output_type="latent",
            return_dict=False,
            callback_on_step_end=_step_reporter(ctx),
            **_given(ctx, "height", "width", "num_frames", "num_inference_steps", "guidance_scale", "guidance_scale_2"),
        )
        return Latents(
            data=data,
            height=int(data.shape[-2]) * view.vae_scale_factor_spatial,
            width=int(data.shape[-1]) * view.vae_scale_factor_spatial,
            num_frames=(int(data.shape[2]) - 1) * view.vae_scale_factor_temporal + 1,
            generator_states=tuple(generator.get_state() for generator in generators),
        )

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


def _argument(ctx: "StageContext", name: str) -> Any:
    """Return the request's value, else the default of the pipeline's own call."""
    value = getattr(ctx.request, name)
    if value is not None:
        return value
    return inspect.signature(type(ctx.pipeline_view()).__call__).parameters[name].default


def _given(ctx: "StageContext", *names: str) -> dict[str, Any]:
    values = {name: getattr(ctx.request, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _repeat(embedding: "Tensor", count: int) -> "Tensor":
    """One row for each output, laid out as `encode_prompt` lays out `num_videos_per_prompt`."""
    return embedding.repeat(1, count, 1).view(count, *embedding.shape[1:])


def _step_reporter(ctx: "StageContext") -> Any:
    def report(pipeline: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        ctx.step(step + 1, pipeline.num_timesteps, values["latents"])
        return values

    return report


def _nearest(value: int, multiple: int) -> str:
    return f"try {max(multiple, round(value / multiple) * multiple)}"
