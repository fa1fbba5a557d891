"""Family `wan_i2v`: Wan from a first picture, by `WanImageToVideoPipeline`'s own methods. No torch at import.

The VAE encodes the picture inside `prepare_latents`, so that method runs in the `condition` stage and is answered in
the loop; only Wan 2.1 also looks at the picture through an image encoder.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_family
from framework.runtime.family_calls import argument, condition_of, picture_problems, step_reporter
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings, Latents
from stages.families.wan import WanFamily, call_arguments, denoise_view, latents_of

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext


@register_family("wan_i2v")
class WanImageToVideoFamily(WanFamily):
    """`request.image` is stretched to the size of the video, as the pipeline does."""

    tasks = ("image to video",)
    pipeline_classes = ("WanImageToVideoPipeline", "WanPipeline")
    view_class = "WanImageToVideoPipeline"
    request_keys: Mapping[str, str | None] = MappingProxyType({**WanFamily.request_keys, "image": None})

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        return [*super().check_request(request, options, configs), *picture_problems(request)]

    def encode_image(self, ctx: "StageContext") -> "Tensor":
        """The last but one layer of the image encoder, `(1, patches, width)`."""
        view = ctx.pipeline_view()
        found: Tensor = view.encode_image(_picture(ctx), ctx.device)
        return found

    def condition(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Condition:
        """Noise and the encoded picture with its mask, as `prepare_latents` returns them."""
        from framework.runtime.preparing import record

        view, generators = denoise_view(ctx), ctx.generators()
        arguments = call_arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        with _seen(ctx, view):
            return record(view, {**arguments, "image": _picture(ctx)}, generators)

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        from framework.runtime.preparing import replayed

        condition = condition_of(ctx)
        view, generators = denoise_view(ctx), ctx.generators(condition.generator_states)
        ctx.expect_steps(int(argument(ctx, "num_inference_steps")))
        arguments = call_arguments(ctx, prompt_embeds, negative_prompt_embeds, generators)
        with _seen(ctx, view), replayed(view, condition, ctx.device):
            returned = view(**arguments, image=_picture(ctx), callback_on_step_end=step_reporter(ctx))
        return latents_of(view, returned, generators)


def _picture(ctx: "StageContext") -> Any:
    from framework.runtime.pictures import read_picture

    assert ctx.request.image is not None, "checked before loading"
    return read_picture(ctx.request.image)


@contextmanager
def _seen(ctx: "StageContext", view: Any) -> Iterator[None]:
    """The pipeline takes embeddings only in place of the picture that it also needs, so its encoder is answered."""
    from torch import Tensor

    from framework.runtime.preparing import answered

    embeds = ctx.values.get("image_embeds")
    if not isinstance(embeds, Tensor):
        yield
        return
    with answered(view, encode_image=embeds.to(ctx.device)):
        yield
