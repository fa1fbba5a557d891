"""Which classes an index may name: those of two libraries, and code in the folder only when it is trusted (SE-02)."""

import json
import sys
from pathlib import Path

import pytest

from framework.errors import LoadError
from framework.loading.classes import component_class, pipeline_class
from framework.loading.index import ClassName, ModelIndex, read_index

CODE = """
from pathlib import Path
from diffusers import AutoencoderKL, DiffusionPipeline
Path(r"{marker}").touch()
class Mine(AutoencoderKL):
    pass
class MyPipeline(DiffusionPipeline):
    def __init__(self, vae):
        super().__init__()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with code of its own, which leaves a marker when it is run."""
    monkeypatch.setattr("diffusers.utils.dynamic_modules_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    model = tmp_path / "model"
    (model / "vae").mkdir(parents=True)
    code = CODE.format(marker=tmp_path / "marker")
    (model / "vae" / "mine.py").write_text(code)
    (model / "pipeline.py").write_text(code)
    content = {"_class_name": ["pipeline", "MyPipeline"], "vae": ["mine", "Mine"]}
    (model / "model_index.json").write_text(json.dumps(content))
    return model


def find(folder: Path, what: str, trusted: bool) -> type:
    index = read_index(folder)
    wanted = index.components["vae"]
    assert wanted is not None
    if what == "pipeline":
        return pipeline_class(index, trusted)
    return component_class(index, "vae", wanted, trusted)


@pytest.mark.parametrize(("what", "file"), [("component", "mine.py"), ("pipeline", "pipeline.py")])
def test_code_in_the_folder_is_not_run_without_consent(folder: Path, what: str, file: str) -> None:
    with pytest.raises(LoadError, match=rf"{file}: .*pipeline\.model\.trust_remote_code=true"):
        find(folder, what, trusted=False)
    assert not (folder.parent / "marker").exists()


@pytest.mark.parametrize(("what", "name"), [("component", "Mine"), ("pipeline", "MyPipeline")])
def test_code_in_the_folder_is_run_with_consent(folder: Path, what: str, name: str) -> None:
    assert find(folder, what, trusted=True).__name__ == name
    assert (folder.parent / "marker").exists()


def test_the_two_libraries_and_their_pipeline_helpers_are_known() -> None:
    index = ModelIndex(Path("x"), ClassName("diffusers", "WanPipeline"), {}, {})
    names = [("diffusers", "AutoencoderKLWan"), ("stable_diffusion", "StableDiffusionSafetyChecker")]
    for library, name in names:
        assert component_class(index, "x", ClassName(library, name), False).__name__ == name
    assert pipeline_class(index, False).__name__ == "WanPipeline"


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("os", "system"),
        ("subprocess", "Popen"),
        ("diffusers", "NoSuchModel"),
        ("diffusers", "logging"),
        ("diffusers", "utils"),
        ("transformers", "Any"),
        ("__builtins__", "eval"),
    ],
)
def test_no_name_leads_out_of_the_libraries(tmp_path: Path, library: str, name: str) -> None:
    index = ModelIndex(tmp_path, ClassName("diffusers", "WanPipeline"), {}, {})
    with pytest.raises(LoadError, match=rf"component 'x' is a {library}\.{name}, which neither"):
        component_class(index, "x", ClassName(library, name), True)


def test_an_unknown_pipeline_is_named() -> None:
    index = ModelIndex(Path("x"), ClassName("diffusers", "FuturePipeline"), {}, {})
    with pytest.raises(LoadError, match="no pipeline class 'FuturePipeline'"):
        pipeline_class(index, True)
