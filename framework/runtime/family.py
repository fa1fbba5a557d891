"""What a family file gives to the standard stages: everything special to one kind of pipeline. No torch at import.

Registered with `@register_family("wan")`; one object for each run. The stages own uses, caching, steps and checks; a
family only knows the pipeline's arguments, returns, latent layout and decode recipe.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from framework.errors import Problem, StageError
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings, Frames, Latents

if TYPE_CHECKING:
    from torch import Tensor

    from framework.runtime.context import StageContext


class Family(Protocol):
    """`pipeline_classes` are the diffusers classes it runs; an embedding depends on `encoders` and `tokenizers`.

    `tasks` say what it makes of what, in the words of the hub.
    `view_class` names another class of diffusers that it puts over the components (image to image over a checkpoint
    that is indexed as text to image), None for the index's own.
    `call_arguments` are the arguments of the call that it takes from `pipeline.args`; where `negative_differs`, a
    negative text is encoded by `encode_negative`, and never served from the cache of positive ones.

    `request_keys` names what it reads of a request, each with the component it is for, or None; see
    `framework.compose.request_keys`. Class a family under this one to inherit what most families leave as it is. One
    text is encoded alone, positive or negative, so that the cache can serve it in either place.
    `negative_prompt_above` may say up to which value of the request's `negative_prompt_scale` no negative prompt is
    read; `negative_prompt_by_default` whether it is where nobody sets that scale.
    """

    tasks: tuple[str, ...]
    pipeline_classes: tuple[str, ...]
    view_class: str | None = None
    call_arguments: tuple[str, ...] = ()
    negative_differs: bool = False
    encoders: tuple[str, ...]
    tokenizers: tuple[str, ...]
    request_keys: Mapping[str, str | None]
    negative_prompt_scale: str = "guidance_scale"
    negative_prompt_by_default: bool = True

    def check_request(
        self, request: RequestSpec, options: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
    ) -> list[Problem]:
        """Return what is wrong with `request`, from the index's options and the components' configs alone."""

    def needs_negative(self, ctx: "StageContext") -> bool:
        """Whether this request computes with a negative text."""

    def max_length(self, ctx: "StageContext") -> int:
        """Number of tokens a text is padded or cut to."""

    def text_identity(self, ctx: "StageContext") -> str:
        """What an embedding depends on besides its text: a picture that the encoder sees too."""
        return ""

    def encode(self, ctx: "StageContext", text: str) -> "Tensor | Embeddings":
        """Return the embedding of one text, `(1, tokens, width)`; the stage holds the encoders' uses."""

    def encode_negative(self, ctx: "StageContext", text: str) -> "Tensor | Embeddings":
        """Return the embedding of a negative text."""
        return self.encode(ctx, text)

    def encode_image(self, ctx: "StageContext") -> "Tensor":
        """Return the request's picture as the image encoder sees it; the stage holds the encoder's use."""
        raise StageError(f"this family encodes no picture, so stage '{ctx.stage}' has nothing to do")

    def condition(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Condition:
        """Return the request's picture or video as latents, with the noise; the stage holds the VAE's use."""
        raise StageError(f"this family takes no picture, so stage '{ctx.stage}' has nothing to do")

    def denoise(
        self,
        ctx: "StageContext",
        prompt_embeds: "Tensor | Embeddings",
        negative_prompt_embeds: "Tensor | Embeddings | None",
    ) -> Latents:
        """Run the pipeline's own loop to latents, one entry for each seed.

        `ctx.values` holds what conditioning stages wrote: `image_embeds` and `condition`, None where there are none.
        """

    def decode(self, ctx: "StageContext", latents: Latents) -> Frames:
        """Turn latents into pictures; the stage holds the VAE's use."""
