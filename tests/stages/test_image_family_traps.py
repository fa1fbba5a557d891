"""What is easy to get wrong where a pipeline of pictures is cut in stages: each trap has its test."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from image_builders import CASES, family_pipeline, family_request, plain_call

from framework.errors import StageError
from framework.registry import FAMILIES
from framework.runtime.events import Note, UseStarted
from framework.values import Embeddings

Named = Callable[[str], Any]
LIKE_ANOTHER = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("flux_kontext", "flux2_klein_edit", "qwen_image")
]
ONE_OF_EACH = ("flux", "qwen_image_edit", "z_image", "sd3", *LIKE_ANOTHER)


def frames(loaded: Any, *wanted: Any, **options: Any) -> list[Any]:
    result, _ = spec_builders.run(loaded, *wanted, **options)
    return [done.values["frames"].data for done in result.requests]


@contextmanager
def poisoned(module: torch.nn.Module) -> Iterator[None]:
    """No weight of the module is a number in this block; its buffers stay, for some loops read them."""
    kept = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    for parameter in module.parameters():
        parameter.data.fill_(float("nan"))
    try:
        yield
    finally:
        for name, parameter in module.named_parameters():
            parameter.data.copy_(kept[name])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_loop_has_no_encoder_and_reads_no_weight_of_the_vae(
    name: str, loaded_families: Named, picture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_families(name)
    wanted = family_request(CASES[name], picture)
    expected = frames(loaded, wanted)
    family, store = FAMILIES.get(loaded[0].family), loaded[2]
    views: list[Any] = []
    original = family.denoise

    def denoise(self: Any, ctx: Any, *embeddings: Any) -> Any:
        views.append(self.denoise_view(ctx))
        with torch.inference_mode(False), poisoned(store.module("vae")), torch.inference_mode():
            return original(self, ctx, *embeddings)

    monkeypatch.setattr(family, "denoise", denoise)
    assert torch.equal(frames(loaded, wanted)[0], expected[0])
    for part in (*family.encoders, *(each for each in family.tokenizers if hasattr(views[0], each))):
        assert getattr(views[0], part) is None
    assert views[0].vae is store.components["vae"]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_request_after_another_gets_its_embeddings_from_the_cache_with_all_their_parts(
    name: str, loaded_families: Named, picture: str
) -> None:
    wanted = family_request(CASES[name], picture)
    first, second, third = frames(loaded_families(name), wanted, replace(wanted, prompt="two dogs"), wanted)
    assert torch.equal(first, third)
    assert not torch.equal(first, second), "this twin does not look at its text"


@pytest.mark.parametrize("name", ["flux", "flux_kontext", "qwen_image", "qwen_image_edit"])
def test_packed_latents_carry_their_size(name: str, loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES[name], picture, height=48, width=64)
    result, _ = spec_builders.run(loaded_families(name), wanted)
    latents = result.requests[0].values["latents"]
    assert latents.data.ndim == 3
    assert (latents.height, latents.width) == (48, 64)
    assert result.requests[0].values["frames"].data.shape == (1, 1, 48, 64, 3)


@pytest.mark.parametrize("name", ["flux2_klein", "z_image", "sd3"])
def test_unpacked_latents_say_the_size_they_stand_for(name: str, loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES[name], picture, height=48, width=32)
    result, _ = spec_builders.run(loaded_families(name), wanted)
    latents = result.requests[0].values["latents"]
    assert (latents.height, latents.width, latents.num_frames) == (48, 32, 1)


def test_true_guidance_of_flux_changes_the_picture(loaded_families: Named, picture: str) -> None:
    """Without the negative pooled vector diffusers switches it off and says nothing."""
    wanted = family_request(CASES["flux_true_guidance"], picture)
    guided, plain = frames(loaded_families("flux"), wanted, replace(wanted, guidance_scale_2=None))
    assert not torch.equal(guided, plain)


def test_flux_encodes_no_negative_text_unless_it_is_asked_for(loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES["flux"], picture, negative_prompt="bad")
    result, _ = spec_builders.run(loaded_families("flux"), wanted, keep=("negative_prompt_embeds",))
    assert result.requests[0].values["negative_prompt_embeds"] is None


def test_the_mask_of_qwen_is_absent_where_every_token_counts(loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES["qwen_image"], picture)
    result, _ = spec_builders.run(loaded_families("qwen_image"), wanted, keep=("prompt_embeds",))
    embedding = result.requests[0].values["prompt_embeds"]
    assert isinstance(embedding, Embeddings)
    assert embedding.parts["prompt_embeds_mask"] is None


def test_a_long_text_for_qwen_is_not_cut_again_in_the_loop(loaded_families: Named, plain_pipeline: Named) -> None:
    """The call cuts embeddings that it is given to its own default of 512 tokens."""
    case = CASES["qwen_image"]
    wanted = family_request(case, "", prompt="a very long prompt " * 35, max_sequence_length=1000)
    result, _ = spec_builders.run(loaded_families("qwen_image"), wanted, keep=("latents", "prompt_embeds"))
    values = result.requests[0].values
    assert values["prompt_embeds"].parts["prompt_embeds"].shape[1] > 512
    assert torch.equal(values["latents"].data, plain_call(case, plain_pipeline("qwen_image"), wanted, "latent"))


def test_a_guidance_of_qwen_guides_without_a_negative_prompt_and_nothing_said_guides_nothing(
    loaded_families: Named, plain_pipeline: Named
) -> None:
    case = CASES["qwen_image"]
    said = family_request(case, "", negative_prompt=None)
    unsaid = replace(said, guidance_scale=None)
    ours = frames(loaded_families("qwen_image"), said, unsaid)
    for values, one, arguments in zip(
        ours,
        (said, unsaid),
        ({"true_cfg_scale": 3.0, "negative_prompt": ""}, {}),
        strict=True,
    ):
        theirs = plain_call(replace(case, plain=arguments), plain_pipeline("qwen_image"), one, "np")
        assert torch.equal(values[:, 0], torch.from_numpy(theirs))


def test_an_embedding_of_an_editor_belongs_to_a_picture_and_not_to_its_path(
    loaded_families: Named, picture: str, tmp_path: Path
) -> None:
    from PIL import Image

    same, other = tmp_path / "same.png", tmp_path / "other.png"
    same.write_bytes(Path(picture).read_bytes())
    with Image.open(picture) as opened:
        opened.rotate(180).save(other)
    wanted = family_request(CASES["qwen_image_edit"], picture)
    requests = (wanted, replace(wanted, image=str(same)), replace(wanted, image=str(other)))
    result, heard = spec_builders.run(loaded_families("qwen_image_edit"), *requests)
    encoded = [event.request for event in heard.of(UseStarted) if event.component == "text_encoder"]
    assert encoded == [0, 2]
    first, second, third = (done.values["frames"].data for done in result.requests)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_klein_reads_a_negative_prompt_that_its_own_call_cannot_take_as_text(
    loaded_families: Named, plain_pipeline: Named, picture: str
) -> None:
    case, theirs = CASES["flux2_klein"], plain_pipeline("flux2_klein_deep")
    wanted = family_request(case, picture, negative_prompt="bad")
    embeds, _ = theirs.encode_prompt(prompt="bad", max_sequence_length=64)
    with_it = replace(case, plain={**case.plain, "negative_prompt_embeds": embeds})
    expected = torch.from_numpy(plain_call(with_it, theirs, wanted, "np"))
    assert torch.equal(frames(loaded_families("flux2_klein"), wanted)[0][:, 0], expected)


def test_z_image_embeddings_stay_lists_of_their_own_length(loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES["z_image"], picture, prompt="one", negative_prompt="a longer text")
    keep = ("prompt_embeds", "negative_prompt_embeds")
    result, _ = spec_builders.run(loaded_families("z_image"), wanted, keep=keep)
    positive, negative = (result.requests[0].values[name].parts["prompt_embeds"] for name in keep)
    assert isinstance(positive, list)
    assert isinstance(negative, list)
    assert len(negative[0]) - len(positive[0]) == len("a longer text") - len("one")


def test_the_three_encoders_of_sd3_are_used_together_once_for_both_texts(loaded_families: Named, picture: str) -> None:
    _, heard = spec_builders.run(loaded_families("sd3"), family_request(CASES["sd3"], picture))
    used = [event.component for event in heard.of(UseStarted) if event.stage == "encode_prompt"]
    assert used == ["text_encoder", "text_encoder_2", "text_encoder_3"]


def test_sd3_runs_from_a_checkpoint_without_t5(
    tiny_folder: Callable[[str], Path], tmp_path: Path, picture: str
) -> None:
    parts = {"text_encoder_3": None, "tokenizer_3": None}
    case, folder = CASES["sd3"], tmp_path / "less"
    theirs = spec_builders.plain(tiny_folder("sd3"), **parts)
    theirs.save_pretrained(folder)
    wanted = family_request(case, picture)
    ours = frames(spec_builders.load(family_pipeline(case, lambda name: folder)), wanted)
    assert torch.equal(ours[0][:, 0], torch.from_numpy(plain_call(case, theirs, wanted, "np")))


@pytest.mark.parametrize("name", ["flux", "z_image"])
def test_embeddings_are_cast_to_the_denoiser_where_encoders_compute_in_another_dtype(
    name: str, tiny_folder: Callable[[str], Path], picture: str
) -> None:
    spec = family_pipeline(CASES[name], tiny_folder)
    low = {part: replace(spec.components[part], dtype="bfloat16") for part in ("transformer", "vae")}
    loaded = spec_builders.load(replace(spec, components={**spec.components, **low}))
    result, _ = spec_builders.run(loaded, family_request(CASES[name], picture), keep=("prompt_embeds", "frames"))
    embedding = result.requests[0].values["prompt_embeds"]
    parts = embedding.parts["prompt_embeds"] if isinstance(embedding, Embeddings) else embedding
    assert (parts[0] if isinstance(parts, list) else parts).dtype == torch.float32
    assert torch.isfinite(result.requests[0].values["frames"].data).all()


def test_kontext_makes_the_size_that_is_asked_for(loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES["flux_kontext"], picture, height=32, width=96)
    assert frames(loaded_families("flux_kontext"), wanted)[0].shape == (1, 1, 32, 96, 3)


def test_an_edited_picture_keeps_its_shape_where_no_size_is_asked_for(loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES["qwen_image_edit"], picture, height=None, width=None)
    assert frames(loaded_families("qwen_image_edit"), wanted)[0].shape == (1, 1, 96, 160, 3)


def test_a_picture_without_a_stage_that_prepares_it_is_an_error(
    tiny_folder: Callable[[str], Path], small_areas: None, picture: str
) -> None:
    case = CASES["flux_kontext"]
    spec = family_pipeline(case, tiny_folder)
    stages = {name: replace(stage, after=()) for name, stage in spec.stages.items() if name != "condition"}
    with pytest.raises(StageError, match="put a stage of kind 'condition' before it"):
        spec_builders.run(spec_builders.load(replace(spec, stages=stages)), family_request(case, picture))


@pytest.mark.parametrize("name", ["flux", "qwen_image", "flux2_klein", "z_image", "sd3"])
def test_a_text_that_is_cut_is_said(name: str, loaded_families: Named, picture: str) -> None:
    wanted = family_request(CASES[name], picture, prompt="a longer text " * 20, guidance_scale=0)
    _, heard = spec_builders.run(loaded_families(name), wanted)
    cut = [note.text for note in heard.of(Note) if "is cut to max_sequence_length=" in note.text]
    assert len(cut) == 1


@pytest.mark.parametrize("name", ["flux_kontext", "flux2_klein_edit", "qwen_image_edit"])
def test_the_picture_is_encoded_before_the_loop_and_once(
    name: str, loaded_families: Named, picture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_families(name)
    vae, calls = loaded[2].module("vae"), []
    original = vae.encode

    @functools.wraps(original)
    def encode(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(vae, "encode", encode)
    frames(loaded, family_request(CASES[name], picture))
    assert len(calls) == 1
