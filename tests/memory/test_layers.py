"""Which modules are layers, and what is refused by name."""

import pytest
import torch
from torch import nn

from framework.errors import ConfigError
from framework.memory.layer_table import known_classes, layer_paths
from framework.memory.layers import check_coverage, find_stacks, loose_tensors, refuse_references
from framework.memory.layerwise import placed_knobs, refuse_unmovable
from framework.spec import Knob, Placement


class Nested(nn.Module):
    """Lists inside lists, a single block, and an empty list."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)) for _ in range(3))
        self.refiner = nn.Module()
        self.refiner.blocks = nn.ModuleList([nn.Linear(2, 2)])
        self.mid_block = nn.Linear(2, 2)
        self.empty = nn.ModuleList()


class WanTransformer3DModel(Nested):
    """Found by its class name."""


def names(*paths: str) -> list[str]:
    return [layer.name for stack in find_stacks("dit", Nested(), paths) for layer in stack.layers]


def test_paths_of_the_yaml_name_the_lists_in_order() -> None:
    assert names("refiner.blocks", "blocks") == ["refiner.blocks.0", "blocks.0", "blocks.1", "blocks.2"]


def test_a_single_block_is_a_stack_of_one() -> None:
    assert names("mid_block") == ["mid_block"]


def test_known_classes_need_no_paths() -> None:
    stacks = find_stacks("dit", WanTransformer3DModel())
    assert [stack.path for stack in stacks] == ["blocks"]
    assert [layer.stack for layer in stacks[0].layers] == [0, 0, 0]


def test_the_yaml_beats_the_table() -> None:
    assert find_stacks("dit", WanTransformer3DModel(), ["refiner.blocks"])[0].path == "refiner.blocks"


def test_an_alternative_path_is_taken_where_the_first_is_missing() -> None:
    assert names("text_model.encoder.layers|blocks") == ["blocks.0", "blocks.1", "blocks.2"]


REFUSED = {
    "no list at all (CF-08)": (nn.Linear(2, 2), (), "Linear has no known list of layers; component-offload and resid"),
    "an unknown class says which lists it has": (
        Nested(),
        (),
        r"Nested has no known list of layers; name its lists in pipeline.components.vae.layers \(it",
    ),
    "an empty list (CF-08)": (Nested(), ("empty",), "its list of layers 'empty' is empty; component-offload"),
    "a misspelt path": (Nested(), ("block",), "it has no list of layers 'block'; did you mean 'blocks'"),
    "a list inside a layer": (Nested(), ("blocks", "blocks.0"), "layer 'blocks.0.0' lies inside layer 'blocks.0'"),
    "one list twice": (Nested(), ("blocks", "blocks"), "'blocks.0' and 'blocks.0' are one module"),
}


@pytest.mark.parametrize(("module", "paths", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_streamed_is_refused_by_name(module: nn.Module, paths: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"component_residency.vae: layerwise-offload cannot be used: {reason}"):
        find_stacks("vae", module, paths)


def test_too_little_in_the_layers_is_refused_with_the_share() -> None:
    check_coverage("te", 10, 100)
    with pytest.raises(ConfigError, match=r"its layers hold only 9.0 % of its weights"):
        check_coverage("te", 9, 100)


def test_a_module_that_keeps_its_weights_in_a_list_of_its_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"refine: component-offload .* '0._flat_weights' \(LSTM\)"):
        refuse_references("refine", "component-offload", nn.Sequential(nn.LSTM(2, 2)))


def test_a_sharded_module_is_refused_by_type() -> None:
    sharded = type("FSDPModule", (nn.Module,), {"__module__": "torch.distributed.fsdp"})
    with pytest.raises(ConfigError, match=r"component-offload cannot move a sharded module \(FSDPModule\)"):
        refuse_unmovable("dit", "component-offload", nn.Sequential(sharded()))


def test_tensors_in_plain_attributes_are_found() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].freqs = torch.ones(3)
    module[0].tables = {"rope": [torch.ones(1), (torch.ones(2),)], "scale": 3.0}
    module[0].own = module[0].weight.data
    vars(module[0])["alias"] = module[0].weight
    assert list(loose_tensors(module)) == ["0.freqs", "0.tables[rope][0]", "0.tables[rope][1][0]", "0.own"]


def test_tensors_of_a_models_helper_objects_are_found() -> None:
    from diffusers.models.transformers.transformer_z_image import RopeEmbedder

    module = nn.Module()
    module.rope_embedder = RopeEmbedder(axes_dims=[4, 2, 2], axes_lens=[8, 4, 4])
    assert loose_tensors(module) == {}
    module.rope_embedder(torch.zeros(1, 3, dtype=torch.int64))
    module.again = {"same": module.rope_embedder}
    assert list(loose_tensors(module)) == [f"rope_embedder.freqs_cis[{number}]" for number in range(3)]


@pytest.mark.parametrize(
    ("prefetch", "resident", "expected"),
    [
        ("1", "0", ((1, 1), (0, 0), None)),
        ("0.5", "0.5", ((2, 1), (2, 1), None)),
        ("all", "all", ((3, 1), (3, 1), None)),
        ("100", "100", ((3, 1), (3, 1), None)),
        ("0", "6KiB", ((0, 0), (0, 0), 6144)),
    ],
)
def test_knobs_are_counted_on_the_real_stacks(prefetch: str, resident: str, expected: tuple[object, ...]) -> None:
    stacks = find_stacks("dit", Nested(), ["blocks", "refiner.blocks"])
    placement = Placement(
        component="dit", group="dit", mode="layerwise-offload", prefetch=Knob(prefetch), resident=Knob(resident)
    )
    knobs = placed_knobs(placement, stacks)
    assert (knobs.prefetch, knobs.resident, knobs.resident_bytes) == expected
    assert (knobs.policy, knobs.lifetime) == ("strided", "use")


def test_the_table_has_no_empty_entries() -> None:
    assert len(known_classes()) > 40
    assert all(layer_paths(name) for name in known_classes())
    assert layer_paths("NoSuchModel") == ()
