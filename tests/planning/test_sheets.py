"""The shipped sheets: small, readable without torch, and right about what the checkpoints are known to weigh."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from framework.errors import PlanError
from framework.paths import CONF, EMBEDDED_MODELS
from framework.planning.facts import ComponentSizes
from framework.planning.inventory import inventory
from framework.planning.sheets import find_sheet, read_sheet, sheet_json, sheet_of, sheet_path
from framework.spec import ComponentSpec, ModelSpec, PipelineSpec

PATHS = sorted(EMBEDDED_MODELS.glob("*.json"))
KNOWN_BILLIONS = {
    ("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "transformer"): 14.288,
    ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", "transformer"): 5.000,
    ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", "vae"): 0.705,
    ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "transformer"): 1.419,
    ("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers", "transformer"): 16.395,
    ("Wan-AI/Wan2.1-I2V-14B-480P-Diffusers", "image_encoder"): 0.631,
    ("black-forest-labs/FLUX.1-dev", "transformer"): 11.901,
    ("black-forest-labs/FLUX.1-dev", "text_encoder_2"): 4.762,
    ("black-forest-labs/FLUX.2-klein-4B", "transformer"): 3.876,
    ("black-forest-labs/FLUX.2-klein-9B", "transformer"): 9.079,
    ("Qwen/Qwen-Image", "transformer"): 20.430,
    ("Qwen/Qwen-Image", "text_encoder"): 8.292,
    ("Tongyi-MAI/Z-Image-Turbo", "transformer"): 6.155,
    ("Tongyi-MAI/Z-Image-Turbo", "text_encoder"): 4.022,
    ("stabilityai/stable-diffusion-xl-base-1.0", "unet"): 2.567,
    ("stable-diffusion-v1-5/stable-diffusion-v1-5", "unet"): 0.860,
    ("Lightricks/LTX-Video", "transformer"): 1.923,
    ("hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v", "transformer"): 8.327,
}
"""Parameters in billions, from public counts."""


def spec(repo: str, *names: str, **component: str) -> PipelineSpec:
    components = {name: ComponentSpec(name=name, **component) for name in names}
    model = ModelSpec(source=repo, dtype="bfloat16")
    return PipelineSpec(name="x", family=None, backend="standard", model=model, components=components, stages={})


def sizes(repo: str, name: str, **component: str) -> ComponentSizes:
    return inventory(spec(repo, name, **component), frozenset({name}), connect=False)[name]


def packaged() -> list[tuple[str, str, str | None, float]]:
    """Name, source, variant and the hint of the download's size, of every packaged pipeline with a sheet."""
    found = []
    for path in sorted((CONF / "pipeline").glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        model, hints = content["model"], content.get("hints") or {}
        if find_sheet(model["source"]) is not None:
            found.append((path.stem, model["source"], model.get("variant"), hints.get("download_gib")))
    return found


@pytest.mark.parametrize(("name", "source", "variant", "said_gib"), packaged())
def test_the_download_that_a_pipeline_speaks_of_is_what_its_sheet_adds_up_to(
    name: str, source: str, variant: str | None, said_gib: float
) -> None:
    sheet = find_sheet(source)
    assert sheet is not None
    narrow = sheet.variants.get(variant or "") in ("float16", "bfloat16")
    tensors = [tensor for part in sheet.parts.values() for tensor in part.tensors]
    size = sum(tensor.size_bytes // (2 if narrow and tensor.dtype == "float32" else 1) for tensor in tensors)
    assert size / 2**30 == pytest.approx(said_gib, rel=0.03)


def test_all_sheets_together_are_small() -> None:
    assert len(PATHS) >= 20
    assert sum(path.stat().st_size for path in PATHS) < 600_000


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_sheet_reads_back_what_it_says(path: Path) -> None:
    sheet = read_sheet(path)
    assert sheet_path(sheet.repo) == path
    assert sheet_of(json.loads(json.dumps(sheet_json(sheet)))) == sheet
    weighted = [part for part in sheet.parts.values() if part.tensors]
    assert {"scheduler", "vae"} <= set(sheet.parts)
    assert all(part.source and part.config for part in weighted)
    assert all(tensor.size_bytes for part in weighted for tensor in part.tensors)


@pytest.mark.parametrize(("repo", "name"), KNOWN_BILLIONS, ids=lambda text: text.rpartition("/")[2])
def test_parameters_are_as_many_as_is_public(repo: str, name: str) -> None:
    found = sizes(repo, name, dtype="float32")
    buffers = found.buffer_bytes
    assert found.size_bytes is not None
    assert (found.size_bytes - buffers) / 4e9 == pytest.approx(KNOWN_BILLIONS[repo, name], rel=1e-3)
    assert found.source == f"sheet:{repo}"


def test_float32_islands_and_casts_are_in_the_figures() -> None:
    found = sizes("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "transformer")
    (blocks,) = found.stacks
    assert (blocks.path, len(blocks.layers)) == ("blocks", 40)
    assert set(blocks.layers[0].by_dtype) == {"bfloat16", "float32"}
    assert blocks.layers[0].by_dtype["float32"] == 4 * (6 + 2) * 5120  # the table, and the norm before cross attention
    assert blocks.layers[0].size_bytes / 2**20 == pytest.approx(670.3, abs=0.1)
    assert (found.dtype, found.file_dtype) == ("bfloat16", "float32")
    assert found.file_bytes == pytest.approx(57.15e9, rel=1e-3)
    assert found.buffer_bytes == 2 * 1024 * 128 * 4


def test_tables_that_only_a_lookup_reads_stay_on_the_host() -> None:
    umt5 = sizes("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "text_encoder")
    assert umt5.table_bytes == 256384 * 4096 * 2
    tied = sizes("black-forest-labs/FLUX.2-klein-4B", "text_encoder")
    assert tied.table_bytes == 0
    assert tied.leftover_bytes > 151936 * 2560 * 2
    assert sizes("black-forest-labs/FLUX.2-klein-9B", "text_encoder").table_bytes == 151936 * 4096 * 2


def test_a_variant_has_its_own_files() -> None:
    plain = spec("stabilityai/stable-diffusion-xl-base-1.0", "unet")
    variant = dataclasses.replace(plain, model=dataclasses.replace(plain.model, variant="fp16"))
    found = [inventory(one, frozenset({"unet"}), connect=False)["unet"] for one in (plain, variant)]
    assert [one.file_dtype for one in found] == ["float32", "float16"]
    assert found[0].file_bytes == 2 * (found[1].file_bytes or 0)
    assert found[0].size_bytes == found[1].size_bytes


def test_what_nobody_knows_is_unknown_and_says_why() -> None:
    found = sizes("somebody/some-model", "transformer")
    assert (found.size_bytes, found.resident_bytes, found.source) == (None, None, "unknown")
    assert found.notes == ("'somebody/some-model' is not on this machine and no sheet of it is shipped",)
    missing = sizes("Qwen/Qwen-Image", "image_encoder")
    assert (missing.size_bytes, missing.notes) == (None, ("sheet:Qwen/Qwen-Image has no 'image_encoder'",))


def test_an_optional_component_that_the_checkpoint_leaves_out_is_not_planned() -> None:
    model = spec("Qwen/Qwen-Image", "vae", "image_encoder")
    components = {**model.components, "image_encoder": ComponentSpec(name="image_encoder", optional=True)}
    found = inventory(dataclasses.replace(model, components=components), frozenset(components), connect=False)
    assert set(found) == {"vae"}


def test_a_damaged_sheet_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a--b.json"
    path.write_text('{"schema": 2}')
    with pytest.raises(PlanError, match=r"a--b\.json: not a sheet of a checkpoint: schema 2"):
        read_sheet(path)


def test_only_a_name_of_the_hub_has_a_sheet() -> None:
    assert find_sheet("Qwen/Qwen-Image") is not None
    assert find_sheet("Qwen--Qwen-Image") is None
