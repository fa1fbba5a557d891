"""Components that a pipeline's folder lists and its YAML does not, for a pipeline called as a whole. No torch.

The folder's `model_index.json` is read, never a weight; what the YAML or the command line says of a component stays.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from framework.compose.selectors import group_of
from framework.errors import ConfigError, LoadError
from framework.loading.index import ModelIndex, read_index
from framework.loading.source import SOURCE_KEY, locate_model
from framework.spec import ModelSpec

WHOLE = "diffusers_pipeline"  # the backend, and the kind of its stage
CALL_ORDER = ("text_encoder", "image_encoder", None, "dit", "vae")  # groups as pipelines call them; None: no group


def with_listed_components(data: dict[str, Any], locate: Callable[[str], str]) -> dict[str, Any]:
    """Return `data` with every module of the pipeline's folder among its components, in the order of their calls.

    Other backends state their components themselves. Raises `ConfigError` where backend and stages disagree, and where
    no component is stated and the folder is not here or has no readable index.
    """
    pipeline = data.get("pipeline") or {}
    _check_stages(pipeline, locate)
    source = (pipeline.get("model") or {}).get("source")
    if pipeline.get("backend") != WHOLE or not source:
        return data
    said = pipeline.get("components") or {}
    try:
        index = _read_index(pipeline)
    except (LoadError, OSError, RuntimeError, ValueError) as error:  # the others: names that no file system takes
        if said:  # enough to check and explain; the run itself says what is missing
            return data
        raise ConfigError.of(SOURCE_KEY, str(error).removeprefix(f"{SOURCE_KEY}: "), locate(SOURCE_KEY)) from error
    return {**data, "pipeline": {**pipeline, "components": _merged(said, index)}}


def _read_index(pipeline: Mapping[str, Any]) -> ModelIndex:
    model = pipeline["model"]
    return read_index(
        locate_model(ModelSpec(source=model["source"], revision=model.get("revision")), pipeline.get("hints") or {})
    )


def _check_stages(pipeline: Mapping[str, Any], locate: Callable[[str], str]) -> None:
    """The backend and the kind of stage of the same name need each other."""
    stages = {name: (stage or {}).get("kind") for name, stage in (pipeline.get("stages") or {}).items()}
    whole = [name for name, kind in stages.items() if kind == WHOLE]
    backend = pipeline.get("backend") or "standard"
    if backend == WHOLE and stages and not whole:
        reason, hint = f"no stage is of kind '{WHOLE}'", "use standard, or start from pipeline=diffusers"
        raise ConfigError.of("pipeline.backend", reason, locate("pipeline.backend"), hint)
    if backend != WHOLE and whole:
        key = f"pipeline.stages.{whole[0]}.kind"
        raise ConfigError.of(key, f"the {backend} backend has no such stage", locate(key), f"set backend: {WHOLE}")


def _merged(said: Mapping[str, Any], index: ModelIndex) -> dict[str, Any]:
    listed = [name for name, wanted in index.components.items() if wanted and _is_module(index.component_folder(name))]
    merged: dict[str, Any] = {}
    for name in dict.fromkeys((*said, *listed)):
        if name in said and said[name] is None:  # refused later, with its place
            merged[name] = None
            continue
        own = {key: value for key, value in (said.get(name) or {}).items() if value is not None}
        merged[name] = {"group": group_of(name, None), **own}
    return dict(sorted(merged.items(), key=lambda entry: CALL_ORDER.index((entry[1] or {}).get("group"))))


def _is_module(folder: Path) -> bool:
    """Tokenizers, processors and schedulers have configs of other names; a folder that is missing is told later."""
    return not folder.is_dir() or (folder / "config.json").is_file() or any(folder.glob("*.safetensors"))
