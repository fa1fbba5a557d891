"""What a pipeline folder says about itself: its `model_index.json` and the configs of its components. No torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.errors import LoadError
from framework.loading.source import INDEX_FILE

CONFIG_FILES = ("config.json", "scheduler_config.json", "preprocessor_config.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class ClassName:
    """A class as an index names it: the library (or a module file beside the weights) and the name in it."""

    library: str
    name: str


@dataclass(frozen=True, slots=True)
class ModelIndex:
    """The read `model_index.json` of `folder`.

    `components` maps a name to its class, None where the checkpoint leaves it out; `options` are the plain values that
    the pipeline's constructor takes, such as `boundary_ratio`.
    """

    folder: Path
    pipeline_class: ClassName
    components: Mapping[str, ClassName | None]
    options: Mapping[str, Any]

    def component_folder(self, name: str) -> Path:
        return self.folder / name


def read_index(folder: Path) -> ModelIndex:
    """Read `folder/model_index.json`. Raises `LoadError` naming the file for anything that is not such an index."""
    return parse_index(folder / INDEX_FILE, read_json(folder / INDEX_FILE))


def parse_index(path: Path, content: Mapping[str, Any]) -> ModelIndex:
    """Return the index that `content` of the file `path` is. Raises `LoadError` as `read_index` does."""
    components: dict[str, ClassName | None] = {}
    options: dict[str, Any] = {}
    for key, value in content.items():
        if key.startswith("_"):
            continue
        if isinstance(value, list) and len(value) == 2 and not all(isinstance(item, int | float) for item in value):
            components[key] = _class_name(path, key, value)
        else:
            options[key] = value
    return ModelIndex(path.parent, _pipeline_class(path, content.get("_class_name")), components, options)


def read_configs(index: ModelIndex) -> dict[str, Mapping[str, Any]]:
    """Return each component's own config as plain data, for checks that need no weights."""
    configs: dict[str, Mapping[str, Any]] = {}
    for name in index.components:
        files = (index.component_folder(name) / file for file in CONFIG_FILES)
        found = next((file for file in files if file.is_file()), None)
        if found is not None:
            configs[name] = read_json(found)
    return configs


def _pipeline_class(path: Path, value: Any) -> ClassName:
    if isinstance(value, str):
        return ClassName("diffusers", value)
    if isinstance(value, list) and len(value) == 2 and all(isinstance(item, str) for item in value):
        return ClassName(*value)
    raise LoadError(f"{path}: _class_name: expected the name of a pipeline class, found {value!r}")


def _class_name(path: Path, key: str, value: list[Any]) -> ClassName | None:
    if value == [None, None]:
        return None
    if all(isinstance(item, str) for item in value):
        return ClassName(*value)
    raise LoadError(f"{path}: {key}: expected [library, class], found {value!r}")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `LoadError` naming the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise LoadError(f"{path}: expected a JSON object")
    return content
