"""Which files of a component are wanted: one format, one variant, nothing twice."""

import pytest

from framework.loading.chosen_files import chosen_weights, missing_shards, wanted_files

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def test_safetensors_come_without_the_same_weights_in_other_formats() -> None:
    names = ["config.json", "model.safetensors", "pytorch_model.bin", "model.onnx", "flax_model.msgpack", "README.md"]
    assert wanted_files(names) == ("config.json", "model.safetensors")


def test_a_variant_comes_without_the_full_weights_and_the_other_way_round() -> None:
    names = ["config.json", "model.safetensors", "model.fp16.safetensors", "model.non_ema.safetensors"]
    assert wanted_files(names, "fp16") == ("config.json", "model.fp16.safetensors")
    assert wanted_files(names) == ("config.json", "model.safetensors")


def test_a_component_without_the_variant_comes_in_full() -> None:
    assert wanted_files(["model.safetensors"], "fp16") == ("model.safetensors",)


def test_a_part_of_a_variants_name_is_another_variant() -> None:
    assert chosen_weights(["model.fp16x.safetensors", "model.safetensors"], "fp16") == ("model.safetensors",)


def test_shards_come_with_their_index_and_without_a_single_file_of_the_same() -> None:
    assert wanted_files([*SHARDS, INDEX, "model.safetensors"]) == (INDEX, *SHARDS)
    assert wanted_files([*SHARDS, "model.safetensors"]) == ("model.safetensors",)


@pytest.mark.parametrize(
    ("shard", "index"),
    [
        (
            "diffusion_pytorch_model.fp16-00001-of-00001.safetensors",
            "diffusion_pytorch_model.safetensors.index.fp16.json",
        ),
        (
            "diffusion_pytorch_model-00001-of-00001.fp16.safetensors",
            "diffusion_pytorch_model.safetensors.index.fp16.json",
        ),
        ("model.fp16-00001-of-00001.safetensors", "model.fp16.safetensors.index.json"),
    ],
)
def test_a_sharded_variant_comes_with_its_own_index_only(shard: str, index: str) -> None:
    plain = [shard.replace(".fp16", ""), index.replace(".fp16", "")]
    assert set(wanted_files([shard, index, *plain], "fp16")) == {shard, index}
    assert set(wanted_files([shard, index, *plain])) == set(plain)


def test_weights_of_another_name_are_taken_only_where_there_are_no_standard_ones() -> None:
    assert chosen_weights(["extra.safetensors", "model.safetensors"]) == ("model.safetensors",)
    assert chosen_weights(["extra.safetensors"]) == ("extra.safetensors",)


def test_pickles_come_only_where_they_are_allowed_and_nothing_else_is_there() -> None:
    assert wanted_files(["config.json", "pytorch_model.bin"]) == ("config.json",)
    assert wanted_files(["config.json", "pytorch_model.bin"], pickles=True) == ("config.json", "pytorch_model.bin")
    assert wanted_files(["model.safetensors", "pytorch_model.bin"], pickles=True) == ("model.safetensors",)


def test_a_config_alone_is_enough_for_what_is_never_called() -> None:
    assert wanted_files(["config.json", "model.safetensors", INDEX], with_weights=False) == ("config.json",)


def test_missing_shards_are_named() -> None:
    assert missing_shards(SHARDS) == ()
    assert missing_shards(SHARDS[1:]) == SHARDS[:1]
    assert missing_shards(["m.fp16-00002-of-00003.safetensors"]) == (
        "m.fp16-00001-of-00003.safetensors",
        "m.fp16-00003-of-00003.safetensors",
    )
