"""What family files share: open request values, a row for each output, reports of steps. No torch at import."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

from framework.errors import Problem, StageError
from framework.runtime.scheduler_seam import around_method
from framework.spec import RequestSpec
from framework.values import Condition, Embeddings

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

    from framework.runtime.context import StageContext

StepCallback = Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]


def argument(ctx: "StageContext", name: str) -> Any:
    """Return the request's value, else the default of the pipeline's own call."""
    value = getattr(ctx.request, name)
    if value is not None:
        return value
    return inspect.signature(type(ctx.pipeline_view()).__call__).parameters[name].default


def given(ctx: "StageContext", *names: str) -> dict[str, Any]:
    """Return the request's values that somebody set; the pipeline's call has its own default for the others."""
    values = {name: getattr(ctx.request, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def repeated(embedding: "Tensor", count: int) -> "Tensor":
    """One row for each output, laid out as `encode_prompt` lays out several outputs of one prompt."""
    return embedding.repeat(1, count, *[1] * (embedding.ndim - 2)).view(count, *embedding.shape[1:])


def embedding_arguments(
    positive: "Tensor | Embeddings",
    negative: "Tensor | Embeddings | None",
    count: int,
    dtype: "torch.dtype | None" = None,
) -> dict[str, Any]:
    """Return the embeddings as arguments of a pipeline's call, a row for each output; absent ones are not named.

    The negative text's parts have the prefix `negative_`. `dtype` is that of the denoiser, where it may differ from
    the encoder's and the pipeline does not cast by itself; masks keep theirs. One that weights are only stored in
    (float8, uint8) changes nothing: nobody computes in it.
    """
    arguments = {name: _rows(part, count) for name, part in _parts(positive).items()}
    if negative is not None:
        arguments |= {f"negative_{name}": _rows(part, count) for name, part in _parts(negative).items()}
    return {name: _cast(part, dtype) for name, part in arguments.items() if part is not None}


def _cast(part: "Tensor | list[Tensor]", dtype: "torch.dtype | None") -> "Tensor | list[Tensor]":
    if dtype is None or not dtype.is_floating_point or dtype.itemsize < 2:
        return part
    if isinstance(part, list):
        return [item.to(dtype) for item in part]
    return part.to(dtype) if part.is_floating_point() else part


def _parts(embedding: "Tensor | Embeddings") -> "Mapping[str, Tensor | list[Tensor] | None]":
    return embedding.parts if isinstance(embedding, Embeddings) else {"prompt_embeds": embedding}


def _rows(part: "Tensor | list[Tensor] | None", count: int) -> "Tensor | list[Tensor] | None":
    if isinstance(part, list):
        return [item for item in part for _ in range(count)]
    return None if part is None else repeated(part, count)


def text_embeddings(ctx: "StageContext") -> "tuple[Tensor | Embeddings, Tensor | Embeddings | None]":
    """Return the positive and the negative embedding among a stage's values, None for no negative."""
    positive, negative = ctx.values["prompt_embeds"], ctx.values.get("negative_prompt_embeds")
    if not _is_embedding(positive) or not (negative is None or _is_embedding(negative)):
        raise StageError(f"stage '{ctx.stage}' reads a text's embedding, and gets {type(positive).__name__}")
    return positive, negative


def condition_of(ctx: "StageContext") -> Condition:
    """Return what a conditioning stage wrote. Raises `StageError` for a graph without one."""
    found = ctx.values.get("condition")
    if not isinstance(found, Condition):
        raise StageError(f"stage '{ctx.stage}' needs the picture; put a stage of kind 'condition' before it")
    return found


def _is_embedding(value: Any) -> "TypeGuard[Tensor | Embeddings]":
    from torch import Tensor

    return isinstance(value, Tensor | Embeddings)


def step_reporter(ctx: "StageContext") -> StepCallback:
    """Return a `callback_on_step_end` that tells the run about each step and stops it where the user asked."""

    def report(pipeline: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        ctx.step(step + 1, pipeline.num_timesteps, values["latents"])
        return values

    return report


@contextmanager
def scheduler_steps(ctx: "StageContext", scheduler: Any) -> Iterator[None]:
    """In this block every step of the scheduler is reported, for calls that have no callback."""
    counted = iter(range(1, 1 << 30))

    def reporting(step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = step(*args, **kwargs)
        number = next(counted)
        ctx.step(number, max(number, len(scheduler.timesteps)), result[0])
        return result

    with around_method(scheduler, "step", reporting):
        yield


def not_multiples(request: RequestSpec, multiple: int) -> Iterator[Problem]:
    """Yield a problem for height and width that the pipeline would round by itself."""
    for name, value in (("height", request.height), ("width", request.width)):
        if value is not None and (value < multiple or value % multiple):
            yield Problem(f"request.{name}", f"{value} is no multiple of {multiple}", hint=nearest(value, multiple))


def picture_problems(
    request: RequestSpec, name: str = "image", least_side: int = 1, widest: int | None = None
) -> Iterator[Problem]:
    """Yield a problem for a picture that is missing, cannot be read, or has a shape that the pipeline cannot use.

    `name` is the key of the request; `least_side` in pixels; `widest` how often the shorter side may fit in the other.
    """
    from framework.errors import ConfigError
    from framework.runtime.pictures import read_picture

    file = getattr(request, name)
    if file is None:
        yield Problem(f"request.{name}", "this pipeline starts from a picture", hint=f"set request.{name}=FILE")
        return
    try:
        width, height = read_picture(file, f"request.{name}").size
    except ConfigError as error:
        yield from error.problems
        return
    short, long = sorted((width, height))
    if short < least_side or (widest is not None and long > widest * short):
        shape = "" if widest is None else f" and at most {widest} to 1"
        reason = f"{width} x {height} pixels: sides of at least {least_side}{shape} are needed"
        yield Problem(f"request.{name}", reason)


def picture_of(ctx: "StageContext", name: str = "image") -> "Image":
    """Return the picture that the request names, upright and in RGB; it was checked before loading."""
    from framework.runtime.pictures import read_picture

    return read_picture(getattr(ctx.request, name), f"request.{name}")


def too_long(request: RequestSpec, longest: int) -> Iterator[Problem]:
    """Yield a problem for a text length that the pipeline does not accept."""
    if request.max_sequence_length is not None and request.max_sequence_length > longest:
        reason = f"{request.max_sequence_length} tokens are more than this pipeline takes"
        yield Problem("request.max_sequence_length", reason, hint=f"at most {longest}")


def note_cut(ctx: "StageContext", num_tokens: int, limit: int) -> None:
    """Tell the user that a text is longer than what is read of it."""
    if num_tokens > limit:
        ctx.note(f"a text of {num_tokens} tokens is cut to max_sequence_length={limit}; the rest is not read")


def spatial_factor(vae: Mapping[str, Any]) -> int:
    """Return how many pixels one latent of a KL autoencoder stands for, from its config; 8 where that does not say."""
    blocks = vae.get("block_out_channels")
    return 8 if blocks is None else int(2 ** (len(blocks) - 1))


def nearest(value: int, multiple: int) -> str:
    """Return the hint with the closest value that would do."""
    return f"try {max(multiple, round(value / multiple) * multiple)}"
