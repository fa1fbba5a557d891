"""What a pipeline's own `__call__` gets from a request and from `pipeline.args`, and what is refused. No torch.

A parameter belongs to the request where the request has a key for it, else to `pipeline.args`; output type, generators
and callbacks belong to the stage.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework.errors import Problem, did_you_mean
from framework.paths import expand
from framework.spec import RequestSpec

COUNTS = ("num_images_per_prompt", "num_videos_per_prompt")
FILES = ("image", "mask", "video")
TEXTS = ("prompt", "negative_prompt")
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("prompt",),
    "negative_prompt": ("negative_prompt",),
    "height": ("height",),
    "width": ("width",),
    "num_frames": ("num_frames",),
    "num_inference_steps": ("num_inference_steps",),
    "guidance_scale": ("guidance_scale",),
    "guidance_scale_2": ("guidance_scale_2",),
    "max_sequence_length": ("max_sequence_length",),
    "num_outputs": COUNTS,
    "fps": ("frame_rate", "fps"),
    "image": ("image",),
    "video": ("video",),
    "mask": ("mask_image", "mask"),
    "strength": ("strength",),
}
"""Request key -> the names that pipelines give it."""
REQUEST_KEYS = {name: key for key, names in PARAMETERS.items() for name in names}

OWNED = ("generator", "output_type", "return_dict", "callback_on_step_end", "callback_on_step_end_tensor_inputs")
OWNED_BEFORE = ("callback", "callback_steps")  # how older pipelines called it
ARGS = "pipeline.args"
Parameters = Mapping[str, inspect.Parameter]


def call_parameters(cls: Any) -> Parameters:
    """Return the named parameters of `cls.__call__`; what a `**kwargs` of it would take has no name and no meaning."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(cls.__call__).parameters
    return {name: parameter for name, parameter in found.items() if name != "self" and parameter.kind in named}


def call_arguments(cls: Any, args: Mapping[str, Any], request: RequestSpec) -> dict[str, Any]:
    """Return what the call gets but for what the stage owns; files are still paths, and the count is left out."""
    parameters = call_parameters(cls)
    values = dict(args)
    for key in PARAMETERS:
        name, value = parameter_of(key, parameters), getattr(request, key)
        if name is not None and value is not None and key != "num_outputs":
            values[name] = value
    return values


def parameter_of(key: str, parameters: Parameters) -> str | None:
    """Return the call's name for a request key, None where the call has no such parameter."""
    return next((name for name in PARAMETERS[key] if name in parameters), None)


def is_picture(value: Any, parameter: inspect.Parameter) -> bool:
    """Whether an argument of `pipeline.args` is the file of a picture: text where the call takes a PIL image."""
    return isinstance(value, str) and "PIL" in str(parameter.annotation)


def check_arguments(cls: Any, args: Mapping[str, Any], requests: Sequence[RequestSpec]) -> list[Problem]:
    """Return everything that `cls.__call__` could not honour, before anything is loaded."""
    parameters = call_parameters(cls)
    found = (_argument(name, value, cls, parameters) for name, value in args.items())
    problems = [problem for problem in found if problem is not None]
    for request in requests:
        problems += _not_taken(cls, parameters, request)
        problems += _missing(cls, parameters, args, request)
        problems += _files(parameters, request)
    return list(dict.fromkeys(problems))


def _argument(name: str, value: Any, cls: Any, parameters: Parameters) -> Problem | None:
    key = f"{ARGS}.{name}"
    owned = (*OWNED, *OWNED_BEFORE)
    if name in owned:
        return Problem(key, "the stage sets this itself", hint="remove it")
    if name not in parameters:
        offered = [known for known in parameters if known not in owned and not _takes_tensors(parameters[known])]
        offered = [known for known in offered if known not in REQUEST_KEYS]
        return Problem(key, f"{cls.__name__} has no argument '{name}'", hint=did_you_mean(name, offered))
    if name in REQUEST_KEYS:
        return Problem(key, "this belongs to the request", hint=f"use {_request_key(REQUEST_KEYS[name])}")
    if is_picture(value, parameters[name]):
        return None if expand(value).is_file() else Problem(key, f"there is no file '{value}'")
    if value is not None and "Tensor" in str(parameters[name].annotation):
        return Problem(key, "this takes tensors, which a config cannot hold", hint="remove it")
    return None


def _takes_tensors(parameter: inspect.Parameter) -> bool:
    """Whether only a tensor will do; a PIL image can be read from a file."""
    return "Tensor" in str(parameter.annotation) and "PIL" not in str(parameter.annotation)


def _not_taken(cls: Any, parameters: Parameters, request: RequestSpec) -> Iterator[Problem]:
    """What the request says and no parameter takes. A frame rate is for the writer too, and several outputs may come
    from several calls, so neither is refused; nor is an empty prompt, for a prompt is always there."""
    for key in PARAMETERS:
        said = getattr(request, key) not in ((None, "") if key == "prompt" else (None,))
        if said and key not in ("fps", "num_outputs") and parameter_of(key, parameters) is None:
            yield Problem(_request_key(key), f"{cls.__name__} takes no '{PARAMETERS[key][0]}'", hint="remove it")
    if request.seeds is not None and "generator" not in parameters:
        yield Problem("seed", f"{cls.__name__} takes no generator, so a seed has no effect", hint="remove it")


def _missing(cls: Any, parameters: Parameters, args: Mapping[str, Any], request: RequestSpec) -> Iterator[Problem]:
    given = call_arguments(cls, args, request)
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in given and name not in OWNED:
            key = _request_key(REQUEST_KEYS[name]) if name in REQUEST_KEYS else f"{ARGS}.{name}"
            yield Problem(key, f"{cls.__name__} cannot be called without it", hint=f"set {key}")


def _files(parameters: Parameters, request: RequestSpec) -> Iterator[Problem]:
    for key in FILES:
        file = getattr(request, key)
        if file is not None and parameter_of(key, parameters) is not None and not expand(file).is_file():
            yield Problem(f"request.{key}", f"there is no file '{file}'")


def _request_key(key: str) -> str:
    return key if key in TEXTS else f"request.{key}"
