"""Tiny pipelines called as a whole: specs, requests and the plain call to compare with. torch inside functions only."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from framework.compose.build import build_pipeline
from framework.compose.listed import with_listed_components
from framework.spec import PipelineSpec, RequestSpec

REQUEST_NAMES = frozenset(field.name for field in fields(RequestSpec))
STAGES = {"generate": {"kind": "diffusers_pipeline"}, "export": {"kind": "export"}}


def whole(folder: Path, args: Mapping[str, Any] | None = None, **changes: Any) -> PipelineSpec:
    """The pipeline of a folder as `pipeline=diffusers` composes it; `changes` replace keys of its mapping."""
    pipeline = {
        "name": folder.name,
        "backend": "diffusers_pipeline",
        "model": {"source": str(folder), "dtype": "float32"},
        "stages": STAGES,
        "args": dict(args or {}),
        **changes,
    }
    return build_pipeline(with_listed_components({"pipeline": pipeline}, lambda key: "")["pipeline"])


def tiny_args(name: str) -> dict[str, Any]:
    """The arguments of a tiny pipeline's call that no request has."""
    import tiny_pipelines

    return {key: value for key, value in tiny_pipelines.CALLS[name].items() if key not in REQUEST_NAMES}


def tiny_request(name: str, picture: Callable[[], Path], **changes: Any) -> RequestSpec:
    """The request of a tiny pipeline's call; `picture` gives the file of `tiny_pipelines.start_picture()`."""
    import tiny_pipelines

    values = {key: value for key, value in tiny_pipelines.CALLS[name].items() if key in REQUEST_NAMES}
    image = {"image": str(picture())} if name in tiny_pipelines.FROM_PICTURES else {}
    return RequestSpec(**{"seeds": (7,), **values, **image, **changes})


def plain_frames(loaded: Any, name: str, wanted: RequestSpec) -> Any:
    """Call `loaded` as a script would for `wanted`; returns `(outputs, frames, height, width, 3)` in numbers."""
    import tiny_pipelines
    import torch

    arguments = tiny_pipelines.call_arguments(name)
    said = {key: getattr(wanted, key) for key in arguments if key in REQUEST_NAMES and key != "image"}
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    single = len(generators) == 1
    count = {} if single else {"num_images_per_prompt": len(generators)}
    generator = generators[0] if single else generators
    output = loaded(**{**arguments, **said, **count}, generator=generator, output_type="np")
    if hasattr(output, "frames"):
        return torch.from_numpy(output.frames)
    return torch.from_numpy(output.images).unsqueeze(1)
