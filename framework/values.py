"""What crosses a stage boundary: plain artifacts that can be kept, hashed and resumed from. No torch at import."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

VALUE_NAMES = (
    "prompt_embeds",
    "negative_prompt_embeds",
    "prompt_masks",
    "pooled",
    "image_embeds",
    "condition",
    "latents",
    "frames",
    "audio",
)


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The embedding of one text with what must travel beside it, for families where one tensor does not say it all.

    Names are those of the pipeline's call for the positive text (`prompt_embeds`, `pooled_prompt_embeds`,
    `prompt_embeds_mask`, ...). A list holds texts of different length; None says that there is no mask.
    """

    parts: "Mapping[str, Tensor | list[Tensor] | None]"


@dataclass(frozen=True, slots=True)
class Condition:
    """What a picture or a video became before the loop: the returns of the pipeline's own preparing methods.

    `prepared` maps a method (`prepare_latents`) to its return, with tensors in tuples as they came. These methods also
    draw the noise, so the loop goes on from `generator_states`, one for each output.
    """

    prepared: "Mapping[str, Tensor | tuple[Tensor | None, ...]]"
    generator_states: "tuple[Tensor, ...]" = ()


@dataclass(frozen=True, slots=True)
class Latents:
    """Latents with what packed tensors do not carry.

    `data` has the family's own layout, first dimension the outputs; `height`, `width` in pixels, `num_frames` in
    frames; `generator_states` holds one state a generator after the loop, because some VAEs draw noise at decode.
    """

    data: "Tensor"
    height: int
    width: int
    num_frames: int
    generator_states: "tuple[Tensor, ...]" = ()


@dataclass(frozen=True, slots=True)
class Frames:
    """Decoded pictures: `data` is `(outputs, frames, height, width, 3)`, float32 in [0, 1]; one frame for an image."""

    data: "Tensor"
    fps: int | None = None


Value: TypeAlias = "Tensor | list[Tensor] | Embeddings | Condition | Latents | Frames | None"
