"""Families `ltx` and `ltx_i2v`: LTX-Video from a text, or from a text and a first picture. No torch at import.

Newer VAEs are told a time and draw noise once more when they decode: `pipeline.args.decode_timestep` and
`decode_noise_scale`, whose defaults are the pipeline's own.
"""

import inspect
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
    note_cut,
    picture_of,
    picture_problems,
    step_reporter,
)
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

MULTIPLE = 32  # what the pipeline's own check asks of height and width
DECODE = ("decode_timestep", "decode_noise_scale")


@register_family("ltx")
class LTXFamily(Family):
    """`request.fps` is a condition of the loop as well as the rate of the file."""

    tasks: tuple[str, ...] = ("text to video",)
    pipeline_classes = ("LTXPipeline", "LTXImageToVideoPipeline")
    view_class: str | None = "LTXPipeline"
    encoders = ("text_encoder",)
    tokenizers = ("tokenizer",)
    call_arguments = DECODE
    negative_prompt_above = 1.0  # the guidance scale up to which no negative prompt is read
    request_keys: Mapping[str, str | None] = MappingProxyType(
        {
            **dict.fromkeys(("height", "width", "num_frames", "num_inference_steps", "guidance_scale")),
            **dict.fromkeys(("max_sequence_length", "fps")),
        }
    )

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline would round down without a word."""
        problems = list(not_multiples(request, MULTIPLE))
        stride, frames = _temporal_stride(configs.get("vae", {})), request.num_frames
        if frames is not None and (frames < 1 or (frames - 1) % stride):
            near = max(1, round((frames - 1) / stride) * stride + 1)
            reason = f"{frames} is not 1 more than a multiple of {stride}"
            problems.append(Problem("request.num_frames", reason, hint=f"try {near}"))
        return problems

    def needs_negative(self, ctx: "StageContext") -> bool:
        return float(argument(ctx, "guidance_scale")) > self.negative_prompt_above

    def max_length(self, ctx: "StageContext") -> int:
        return int(argument(ctx, "max_sequence_length"))

    def encode(self, ctx: "StageContext", text: str) -> Embeddings:
        """T5's embedding `(1, max_length, width)` and its mask."""
        view, limit = ctx.pipeline_view(), self.max_length(ctx)
        note_cut(ctx, len(view.tokenizer(text).input_ids), limit)
        embeds, mask, _, _ = view.encode_prompt(
            prompt=text, do_classifier_free_guidance=False, max_sequence_length=limit
        )
        return Embeddings({"prompt_embeds": embeds, "prompt_attention_mask": mask})

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Latents are packed, `(outputs, patches, channels)`; their size is beside them."""
        view, generators = self.denoise_view(ctx), ctx.generators()
        arguments = self.call(ctx, prompt_embeds, negative_prompt_embeds, generators)
        return self.run(ctx, view, arguments, generators)

    def run(
        self, ctx: "StageContext", view: Any, arguments: Mapping[str, Any], generators: "Sequence[Generator]"
    ) -> Latents:
        """Call the pipeline and put the size beside what it returns."""
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        (data,) = view(**arguments, callback_on_step_end=step_reporter(ctx))
        height, width, num_frames = (int(argument(ctx, name)) for name in ("height", "width", "num_frames"))
        return Latents(
            data=data,
            height=height,
            width=width,
            num_frames=num_frames,
            generator_states=tuple(generator.get_state() for generator in generators),
        )

    def call(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        """Return the arguments of the pipeline's call, from embeddings to latents."""
        frame_rate = {"frame_rate": ctx.request.fps} if ctx.request.fps is not None else {}
        return {
            **embedding_arguments(prompt_embeds, negative_prompt_embeds, len(generators)),
            **given(ctx, "height", "width", "num_frames", "num_inference_steps", "guidance_scale"),
            **frame_rate,
            "generator": list(generators),
            "output_type": "latent",
            "return_dict": False,
        }

    def denoise_view(self, ctx: "StageContext") -> Any:
        """The pipeline without what encodes texts."""
        return ctx.pipeline_view(without=(*self.encoders, *self.tokenizers))

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """Unpack, denormalise, and mix in noise where the VAE was trained for it, as the pipeline does."""
        view = self.denoise_view(ctx)
        vae = view.vae
        data = view._unpack_latents(
            latents.data.to(ctx.device),
            (latents.num_frames - 1) // view.vae_temporal_compression_ratio + 1,
            latents.height // view.vae_spatial_compression_ratio,
            latents.width // view.vae_spatial_compression_ratio,
            view.transformer_spatial_patch_size,
            view.transformer_temporal_patch_size,
        )
        data = view._denormalize_latents(data, vae.latents_mean, vae.latents_std, vae.config.scaling_factor)
        data, timestep = _mixed(ctx, view, data, latents)
        video = vae.decode(data.to(vae.dtype), timestep, return_dict=False)[0]
        pictures = view.video_processor.postprocess_video(video, output_type="pt")
        return Frames(pictures.permute(0, 1, 3, 4, 2).float().cpu().contiguous(), ctx.request.fps)


@register_family("ltx_i2v")
class LTXImageToVideoFamily(LTXFamily):
    """`request.image` is the first frame; it is scaled to the size of the video, as the pipeline does."""

    tasks = ("image to video",)
    view_class = "LTXImageToVideoPipeline"
    request_keys: Mapping[str, str | None] = MappingProxyType({**LTXFamily.request_keys, "image": None})

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        return [*super().check_request(request, options, configs), *picture_problems(request)]

    def condition(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Condition:
        """Noise with the encoded picture in its first frame, and the mask of that frame."""
        from framework.runtime.preparing import record

        view, generators = self.denoise_view(ctx), ctx.generators()
        return record(view, self.call(ctx, prompt_embeds, negative_prompt_embeds, generators), generators)

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        from framework.runtime.preparing import replayed

        condition = condition_of(ctx)
        view, generators = self.denoise_view(ctx), ctx.generators(condition.generator_states)
        arguments = self.call(ctx, prompt_embeds, negative_prompt_embeds, generators)
        with replayed(view, condition, ctx.device):
            return self.run(ctx, view, arguments, generators)

    def call(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        shared = super().call(ctx, prompt_embeds, negative_prompt_embeds, generators)
        return {**shared, "image": [picture_of(ctx)] * len(generators)}  # the pipeline repeats texts, not pictures


def _mixed(ctx: "StageContext", view: Any, data: "Tensor", latents: Latents) -> "tuple[Tensor, Tensor | None]":
    """Return what the VAE decodes and the time it is told, in the order of operations of the pipeline."""
    import torch
    from diffusers.utils.torch_utils import randn_tensor

    if not view.vae.config.timestep_conditioning:
        return data, None
    generators = ctx.generators(latents.generator_states)
    noise = randn_tensor(data.shape, generator=generators, device=data.device, dtype=data.dtype)
    chosen = {name: _chosen(ctx, view, name) for name in DECODE}
    if chosen["decode_noise_scale"] is None:
        chosen["decode_noise_scale"] = chosen["decode_timestep"]
    timestep, scale = (
        torch.tensor([chosen[name]] * len(data), device=data.device, dtype=data.dtype) for name in DECODE
    )
    scale = scale[:, None, None, None, None]
    return (1 - scale) * data + scale * noise, timestep


def _chosen(ctx: "StageContext", view: Any, name: str) -> Any:
    if name in ctx.arguments:
        return ctx.arguments[name]
    return inspect.signature(type(view).__call__).parameters[name].default


def _temporal_stride(vae: Mapping[str, Any]) -> int:
    """Frames that one latent frame stands for, from the VAE's config."""
    stated = vae.get("temporal_compression_ratio")
    if stated is not None:
        return int(stated)
    halvings = sum(map(bool, vae.get("spatio_temporal_scaling", (True, True, True, False))))
    return int(vae.get("patch_size_t", 1)) << halvings
