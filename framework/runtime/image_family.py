"""What families of pictures share: sizes, the loop by the pipeline's own call, the KL decoder. No torch at import.

A picture to start from is prepared by the pipeline's own methods in the `condition` stage, see
`framework.runtime.preparing`; the same family runs without that stage where nothing is to be encoded.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem, StageError
from framework.runtime.family import Family
from framework.runtime.family_calls import (
    argument,
    embedding_arguments,
    given,
    not_multiples,
    picture_of,
    picture_problems,
    spatial_factor,
    step_reporter,
    too_long,
)
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from framework.runtime.context import StageContext

IMAGE_KEYS: Mapping[str, str | None] = MappingProxyType(
    dict.fromkeys(("height", "width", "num_inference_steps", "guidance_scale", "max_sequence_length"))
)


class ImageFamily(Family):
    """A family of pictures; a subclass says its classes, its encoders, how a text is encoded, and what differs.

    `repeats_texts` says that the call repeats given embeddings for several outputs by itself; `longest_text` is the
    most tokens that the call accepts; `needs_picture` that it does nothing without one.
    """

    tasks: tuple[str, ...] = ("text to image",)
    encoders: tuple[str, ...] = ("text_encoder",)
    tokenizers: tuple[str, ...] = ("tokenizer",)
    request_keys: Mapping[str, str | None] = IMAGE_KEYS
    repeats_texts = False
    longest_text: int | None = None
    needs_picture = False
    least_side = 1  # pixels of a picture to start from
    widest: int | None = None  # how often its shorter side may fit into the longer one

    def multiple(self, configs: Mapping[str, Mapping[str, Any]]) -> int:
        """Pixels that height and width must be multiples of: what the VAE halves away, and patches of two latents."""
        return 2 * spatial_factor(configs.get("vae", {}))

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Refuse sizes that the pipeline would round, texts longer than it takes, and a picture it cannot read."""
        problems = list(not_multiples(request, self.multiple(configs)))
        if self.longest_text is not None:
            problems += too_long(request, self.longest_text)
        if self.needs_picture or request.image is not None:
            problems += picture_problems(request, least_side=self.least_side, widest=self.widest)
        return problems

    def max_length(self, ctx: "StageContext") -> int:
        return int(argument(ctx, "max_sequence_length"))

    def size(self, ctx: "StageContext", view: Any) -> dict[str, int]:
        """Return height and width in pixels for the call; what is not said is the pipeline's own."""
        return given(ctx, "height", "width")

    def size_made(self, view: Any, arguments: Mapping[str, Any], data: "Tensor") -> tuple[int, int]:
        """Return height and width in pixels of what the loop gave."""
        return int(data.shape[-2]) * view.vae_scale_factor, int(data.shape[-1]) * view.vae_scale_factor

    def guidance(self, ctx: "StageContext") -> dict[str, Any]:
        """Return the request's guidance under the names of the call."""
        return given(ctx, "guidance_scale")

    def call(
        self,
        ctx: "StageContext",
        view: Any,
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
        generators: "Sequence[Generator]",
    ) -> dict[str, Any]:
        """Return the arguments of the pipeline's call, from embeddings to latents."""
        count = len(generators)
        rows = 1 if self.repeats_texts else count
        return {
            **embedding_arguments(prompt_embeds, negative_prompt_embeds, rows, dtype=view.transformer.dtype),
            **given(ctx, "num_inference_steps", "max_sequence_length"),
            **self.guidance(ctx),
            **({"image": picture_of(ctx)} if ctx.request.image is not None else {}),
            **self.size(ctx, view),
            "num_images_per_prompt": count // rows,
            "generator": list(generators),
            "output_type": "latent",
            "return_dict": False,
        }

    def condition(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Condition:
        """Noise, and the encoded picture where the request has one, as the pipeline's own methods return them."""
        from framework.runtime.preparing import record

        view, generators = self.denoise_view(ctx), ctx.generators()
        arguments = self.call(ctx, view, prompt_embeds, negative_prompt_embeds, generators)
        return record(view, arguments, generators, self.prepares(ctx))

    def prepares(self, ctx: "StageContext") -> tuple[str, ...]:
        """Return the pipeline's methods that draw the noise and encode the picture, in their order."""
        return ("prepare_latents",)

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Run the loop. Latents have the layout that the pipeline returns; what it lacks is beside them."""
        from framework.runtime.preparing import replayed

        condition = self._prepared(ctx)
        states = condition.generator_states if condition is not None else ()
        view, generators = self.denoise_view(ctx), ctx.generators(states)
        arguments = self.call(ctx, view, prompt_embeds, negative_prompt_embeds, generators)
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        with nullcontext() if condition is None else replayed(view, condition, ctx.device):
            (data,) = view(**arguments, callback_on_step_end=step_reporter(ctx))
        height, width = self.size_made(view, arguments, data)
        states = tuple(generator.get_state() for generator in generators)
        return Latents(data=data, height=height, width=width, num_frames=1, generator_states=states)

    def denoise_view(self, ctx: "StageContext") -> Any:
        """The pipeline without what encodes texts."""
        return ctx.pipeline_view(without=(*self.encoders, *self.tokenizers))

    def _prepared(self, ctx: "StageContext") -> Condition | None:
        found = ctx.values.get("condition")
        if isinstance(found, Condition):
            return found
        if ctx.request.image is not None:
            raise StageError(f"stage '{ctx.stage}' needs the picture; put a stage of kind 'condition' before it")
        return None

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """The recipe of a KL autoencoder: divide by its scale, then add its shift."""
        view = self.denoise_view(ctx)
        vae = view.vae
        data = self.unpacked(view, latents).to(ctx.device, dtype=vae.dtype)
        data = (data / vae.config.scaling_factor) + vae.config.shift_factor
        return pictures(view, vae.decode(data, return_dict=False)[0])

    def unpacked(self, view: Any, latents: Latents) -> "Tensor":
        """Return latents as `(outputs, channels, height, width)`."""
        return latents.data


class PackedImageFamily(ImageFamily):
    """Latents come as `(outputs, patches, channels)`, so that the size has to be said and kept beside them."""

    def size(self, ctx: "StageContext", view: Any) -> dict[str, int]:
        default = view.default_sample_size * view.vae_scale_factor
        return {"height": ctx.request.height or default, "width": ctx.request.width or default}

    def size_made(self, view: Any, arguments: Mapping[str, Any], data: "Tensor") -> tuple[int, int]:
        return arguments["height"], arguments["width"]

    def unpacked(self, view: Any, latents: Latents) -> "Tensor":
        found: Tensor = view._unpack_latents(latents.data, latents.height, latents.width, view.vae_scale_factor)
        return found


def pictures(view: Any, decoded: "Tensor") -> Frames:
    """Return what a VAE decoded, `(outputs, 3, height, width)` around 0, as pictures of one frame each."""
    data = view.image_processor.postprocess(decoded, output_type="pt")
    return Frames(data.movedim(1, -1).unsqueeze(1).float().cpu().contiguous())
