"""From the class names of an index to classes: only those of diffusers and transformers, or code the user trusts.

Imports diffusers or transformers inside its functions.
"""

import importlib
from pathlib import Path
from typing import Any

from framework.errors import LoadError
from framework.loading.index import ClassName, ModelIndex

LIBRARIES = ("diffusers", "transformers")
TRUST_KEY = "pipeline.model.trust_remote_code"


def component_class(index: ModelIndex, name: str, wanted: ClassName, trust_remote_code: bool) -> Any:
    """Return the class of component `name`.

    Raises `LoadError` for a class that neither library has, and for code in the model folder unless it is trusted.
    """
    found = _library_class(wanted)
    if found is not None:
        return found
    file = index.component_folder(name) / f"{wanted.library}.py"
    if not file.is_file():
        raise LoadError(
            f"{index.folder}: component '{name}' is a {wanted.library}.{wanted.name}, which neither "
            f"{' nor '.join(LIBRARIES)} has"
        )
    return _trusted_class(file, wanted, f"component '{name}'", trust_remote_code)


def pipeline_class(index: ModelIndex, trust_remote_code: bool) -> Any:
    """Return the pipeline class of the index; the same rules as for components."""
    wanted = index.pipeline_class
    found = _library_class(wanted)
    if found is not None:
        return found
    file = index.folder / f"{wanted.library}.py"
    if not file.is_file():
        raise LoadError(f"{index.folder}: this diffusers has no pipeline class '{wanted.name}'")
    return _trusted_class(file, wanted, "the pipeline", trust_remote_code)


def library_class(name: str) -> Any:
    """Return a pipeline class of diffusers by its name. Raises `LoadError` where this diffusers lacks it."""
    found = _library_class(ClassName("diffusers", name))
    if found is None:
        raise LoadError(f"this diffusers has no pipeline class '{name}'")
    return found


def _library_class(wanted: ClassName) -> Any:
    """Return the class, or None where the name leads out of the two libraries."""
    if wanted.library in LIBRARIES:
        found = getattr(importlib.import_module(wanted.library), wanted.name, None)
    else:  # helpers such as a safety checker are named by their pipeline's folder
        pipelines = importlib.import_module("diffusers.pipelines")
        found = getattr(getattr(pipelines, wanted.library, None), wanted.name, None)
    if not isinstance(found, type) or found.__module__.split(".")[0] not in LIBRARIES:
        return None
    return found if hasattr(found, "from_pretrained") else None


def _trusted_class(file: Path, wanted: ClassName, subject: str, trust_remote_code: bool) -> Any:
    if not trust_remote_code:
        raise LoadError(
            f"{file}: {subject} is code from the model folder, which is not run; read it, then set {TRUST_KEY}=true"
        )
    from diffusers.utils.dynamic_modules_utils import get_class_from_dynamic_module

    return get_class_from_dynamic_module(
        str(file.parent), module_file=file.name, class_name=wanted.name, trust_remote_code=True
    )
