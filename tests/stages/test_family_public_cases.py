"""Bug reports of other systems on folders of several families: US-04, US-07, SE-02, SE-03, LI-02."""

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from family_builders import CASES
from image_builders import family_pipeline, family_request

from framework.errors import FrameworkError, LoadError, StageError
from framework.runtime.events import Note

Folder = Callable[[str], Path]
DENOISERS = {"sd15": "unet", "sdxl": "unet", "flux": "transformer", "ltx": "transformer", "sana": "transformer"}


@pytest.fixture
def copied(tiny_folder: Folder, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a case's folder that a test may spoil."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(tiny_folder(CASES[name].tiny), tmp_path / name))

    return copy


def load(name: str, folder: Path, **model: Any) -> Any:
    spec = family_pipeline(CASES[name], lambda _: folder)
    return spec_builders.load(replace(spec, model=replace(spec.model, **model)))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("a connection was tried")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("variable", [None, "1"])
def test_us04_a_folder_is_loaded_without_a_connection(
    variable: str | None, tiny_folder: Folder, no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    if variable is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", variable)
    assert load("sdxl", tiny_folder("sdxl"))[2].modules()


@pytest.mark.parametrize(("name", "component"), [("sdxl", "text_encoder_2"), ("ltx", "transformer"), ("sd3", "vae")])
def test_us04_a_missing_component_is_named_with_its_folder(
    name: str, component: str, copied: Callable[[str], Path], no_network: None
) -> None:
    folder = copied(name)
    shutil.rmtree(folder / component)
    with pytest.raises(FrameworkError) as caught:
        load(name, folder)
    (line,) = str(caught.value).splitlines()
    assert component in line
    assert str(folder) in line


def poison(module: torch.nn.Module, part: str) -> Callable[[], None]:
    """Make one weight of the first layer below `part` infinite; returns what puts it back."""
    weight = next(p for n, p in module.named_parameters() if part in n and n.endswith("weight") and p.ndim > 1)
    before = weight.detach().clone()
    weight.data.view(-1)[0] = float("inf")
    return lambda: setattr(weight, "data", before)


@pytest.mark.parametrize("name", ["sdxl", pytest.param("sana", marks=pytest.mark.slow)])
def test_us07_the_first_stage_and_step_without_numbers_are_named(name: str, tiny_folder: Folder) -> None:
    loaded, wanted = load(name, tiny_folder(CASES[name].tiny)), family_request(CASES[name], "")
    restore = poison(loaded[2].module(DENOISERS[name]), "block")
    with pytest.raises(StageError, match=r"stage 'denoise'.*not finite.*step 1 of"):
        spec_builders.run(loaded, wanted)
    restore()
    restore = poison(loaded[2].module("vae"), "decoder")
    with pytest.raises(StageError, match=r"stage 'decode'.*not finite"):
        spec_builders.run(loaded, wanted)
    restore()
    spec_builders.run(loaded, wanted)


@pytest.mark.parametrize(("name", "component"), [("sdxl", "unet"), ("flux", "transformer")])
def test_se02_code_of_a_families_folder_runs_with_consent_only(
    name: str, component: str, copied: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, marker = copied(name), tmp_path / "marker"
    (folder / component / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Mine: pass\n")
    index = json.loads((folder / "model_index.json").read_text())
    for entry in (["mine", "Mine"], [["mine"], "Mine"]):
        (folder / "model_index.json").write_text(json.dumps({**index, component: entry}))
        with pytest.raises(FrameworkError) as caught:
            load(name, folder)
        assert str(folder) in str(caught.value) or component in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize(("name", "component"), [("sd15", "unet"), ("flux", "text_encoder_2")])
def test_se03_a_pickle_is_refused_with_the_way_to_convert_it_and_never_beats_safetensors(
    name: str, component: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(name)
    (file,) = (folder / component).glob("*.safetensors")
    pickle = file.with_name("diffusion_pytorch_model.bin" if file.name.startswith("diff") else "pytorch_model.bin")
    torch.save({"nothing": torch.zeros(1)}, pickle)
    assert load(name, folder, allow_pickle=True)[2].module(component) is not None
    file.unlink()
    with pytest.raises(LoadError, match=r"is a pickle, which is not read; convert it to safetensors"):
        load(name, folder)


@pytest.mark.parametrize(
    ("name", "parts"), [("sd3", ("text_encoder_3", "tokenizer_3")), ("sd15", ("safety_checker", "feature_extractor"))]
)
def test_li02_a_family_runs_without_what_a_checkpoint_may_leave_out(
    name: str, parts: tuple[str, ...], copied: Callable[[str], Path], tiny_folder: Folder
) -> None:
    folder = copied(name)
    index = json.loads((folder / "model_index.json").read_text())
    absent = {part: [None, None] for part in parts}
    (folder / "model_index.json").write_text(json.dumps({**index, **absent}))
    shutil.rmtree(folder / parts[0])
    loaded, wanted = load(name, folder), family_request(CASES[name], "")
    assert parts[0] not in loaded[2].modules()
    result, recorder = spec_builders.run(loaded, wanted)
    found = result.requests[0].values["frames"].data
    assert torch.isfinite(found).all()
    if name == "sd15":  # its checker changes nothing, and its absence is said
        checked, _ = spec_builders.run(load(name, tiny_folder("sd15_checked")), wanted)
        assert torch.equal(found, checked.requests[0].values["frames"].data)
        assert any("no safety checker" in note.text for note in recorder.of(Note))


@pytest.mark.parametrize(("name", "component"), [("sdxl", "text_encoder_2"), ("flux", "text_encoder")])
def test_li02_what_a_stage_needs_is_refused_where_the_checkpoint_leaves_it_out(
    name: str, component: str, copied: Callable[[str], Path]
) -> None:
    folder = copied(name)
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, component: [None, None]}))
    with pytest.raises(LoadError, match=f"component '{component}'"):
        load(name, folder)
