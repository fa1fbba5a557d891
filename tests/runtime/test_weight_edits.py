"""Adapters on streamed, moved and resident components: the same bytes in every mode, and no trace afterwards."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spec_builders
import torch
from safetensors.torch import save_file
from spec_builders import request
from torch import Tensor

from framework.errors import ConfigError, FrameworkError, LoadError, PlanError
from framework.graph import build_graph
from framework.loading.load import load_store
from framework.memory.resources import make_resources
from framework.platforms.sim.testing import sim as sim
from framework.platforms.sim.world import World
from framework.runtime.events import EventBus
from framework.runtime.placed import Placed
from framework.runtime.weight_edits import WeightEdits
from framework.spec import Knob, LoraSpec, Placement

Folder = Callable[[str], Path]
MODES = ("resident", "component-offload", "layerwise-offload", "permanent")
"""`permanent`: streamed, with residents that have no copy on the host."""
EXPERTS = ("transformer", "transformer_2")
WIDTH = 24
SHORT: dict[str, Any] = {"num_frames": 1, "guidance_scale": 1.0, "num_inference_steps": 2}  # a step for each expert


class Rig:
    """The tiny Wan 2.2 on `sim`, its experts in one mode."""

    def __init__(self, folder: Path, mode: str, dtype: str = "float32") -> None:
        device = torch.device("sim", 0)
        streamed = mode in ("layerwise-offload", "permanent")
        knobs: dict[str, Any] = {"prefetch": Knob("1"), "resident": Knob("1")} if streamed else {}
        if mode == "permanent":
            mode, knobs["lifetime"] = "layerwise-offload", "permanent"
        placements = {name: Placement(component=name, group="dit", mode=mode, **knobs) for name in EXPERTS}
        model = spec_builders.ModelSpec(source=str(folder), dtype=dtype)
        stages = spec_builders.standard_stages(two_experts=True)
        stages = {name: stages[name] for name in ("encode_prompt", "denoise")}
        self.spec = spec_builders.pipeline("wan22", lambda _: folder, model=model, stages=stages)
        self.graph = build_graph(self.spec)
        self.placed = Placed(placements, make_resources(device))
        self.store = load_store(self.spec, self.graph, placements, EventBus(), device, place=self.placed.strategy)
        self.edits = WeightEdits(self.store, self.placed)

    def run(self) -> Tensor:
        loaded = self.spec, self.graph, self.store
        result, _ = spec_builders.run(loaded, request(**SHORT), placed=self.placed, keep=("latents",))
        latents: Tensor = result.requests[0].values["latents"].data.cpu()
        return latents

    def runs(self, loras: list[LoraSpec], *scales: tuple[float, ...] | None) -> list[Tensor]:
        """Requests that differ in the strengths of the adapters alone, in one run."""
        requests = [request(**SHORT, lora_scales=each) for each in scales]
        loaded = self.spec, self.graph, self.store
        options = {"placed": self.placed, "keep": ("latents",), "edits": self.edits}
        result, _ = spec_builders.run(loaded, *requests, changes={"loras": tuple(loras)}, **options)
        return [each.values["latents"].data.cpu() for each in result.requests]

    def weights(self, component: str = "transformer") -> dict[str, Tensor]:
        """Copies of the weights as the next use gets them."""
        module = self.store.module(component)
        strategy: Any = self.placed.strategy(component, module)
        reach = getattr(strategy, "host_weights", lambda: dict(module.named_parameters()))
        found = {name: tensor.detach().cpu().clone() for name, tensor in reach().items()}
        getattr(strategy, "place", lambda: None)()
        return found

    def close(self) -> None:
        self.placed.close()
        vars(self).clear()


@pytest.fixture
def make(tiny_folder: Folder, sim: World) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def build(mode: str, **options: Any) -> Rig:
        made.append(Rig(tiny_folder("wan22"), mode, **options))
        return made[-1]

    with torch.no_grad():
        yield build
    for rig in made:
        rig.close()


def same(weights: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)


def pair(module: str, seed: int, out: int = WIDTH, into: int = WIDTH, rank: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{module}.lora_A.weight": torch.randn(rank, into, generator=generator),
        f"{module}.lora_B.weight": torch.randn(out, rank, generator=generator),
    }


def adapter(path: Path, seed: int = 0, prefix: str = "transformer.", **more: Tensor) -> Path:
    """A file for some layers, among them one outside the stack, with an alpha and a bias."""
    modules = [f"blocks.{i}.attn1.to_q" for i in range(6)] + ["blocks.1.attn2.to_out.0"]
    tensors = {n: t for number, m in enumerate(modules) for n, t in pair(f"{prefix}{m}", seed + number).items()}
    tensors |= pair(f"{prefix}condition_embedder.text_embedder.linear_2", seed + 50)
    tensors[f"{prefix}blocks.0.attn1.to_q.alpha"] = torch.tensor(4.0)
    tensors[f"{prefix}blocks.2.attn1.to_q.lora_B.bias"] = torch.full((WIDTH,), 0.25)
    save_file({**tensors, **more}, path)
    return path


def test_oc09_adapters_on_two_experts_equal_the_resident_run_and_leave_nothing(
    make: Callable[..., Rig], tmp_path: Path
) -> None:
    first, second = adapter(tmp_path / "a.safetensors"), adapter(tmp_path / "b.safetensors", seed=9)
    runs: dict[str, list[Tensor]] = {}
    for mode in MODES:
        rig = make(mode)
        runs[mode] = []
        for loras in ([], [LoraSpec(first, 0.5, EXPERTS)], [LoraSpec(second, 1.0, EXPERTS)], []):
            rig.edits.apply(loras)
            runs[mode].append(rig.run())
        before, with_first, with_second, after = runs[mode]
        assert torch.equal(before, after)
        assert not torch.equal(before, with_first)
        assert not torch.equal(with_first, with_second)
    for mode in MODES[1:]:
        assert all(torch.equal(one, other) for one, other in zip(runs[mode], runs["resident"], strict=True))


def test_every_request_of_a_run_has_its_own_strengths_in_every_mode(make: Callable[..., Rig], tmp_path: Path) -> None:
    loras = [LoraSpec(adapter(tmp_path / "a.safetensors"), 0.5, EXPERTS)]
    loras.append(LoraSpec(adapter(tmp_path / "b.safetensors", seed=9), 1.0, ("transformer",)))
    expected: list[Tensor] = []
    for mode in MODES:
        rig = make(mode)
        before, other = rig.weights(), rig.weights("transformer_2")
        if not expected:
            for scales in ((0.5, 1.0), (0.2, 0.0), (0.0, 0.0)):
                rig.edits.apply(
                    [LoraSpec(lora.source, scale, lora.components) for lora, scale in zip(loras, scales, strict=True)]
                )
                expected.append(rig.run())
            rig.edits.apply([])
            assert torch.equal(expected[2], rig.run())
            assert not torch.equal(expected[0], expected[1])
        found = rig.runs(loras, None, (0.2, 0.0), (0.0, 0.0), None)
        numbers = (0, 1, 2, 0)
        assert all(torch.equal(one, expected[number]) for one, number in zip(found, numbers, strict=True)), mode
        rig.edits.apply([])
        assert same(rig.weights(), before)
        assert same(rig.weights("transformer_2"), other)


def test_an_instance_that_comes_later_gets_the_adapters_too(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make("component-offload")
    loras = [LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))]
    rig.edits.apply(loras)
    edited = rig.weights()
    old = rig.store.module("transformer")
    fresh: Any = type(old)(**dict(old.config))
    rig.edits.apply([])
    fresh.load_state_dict(rig.weights(), strict=False)
    rig.edits.apply(loras)
    rig.placed.forget("transformer")
    rig.store.replace("transformer", fresh)
    rig.edits.apply(loras)
    assert same(rig.weights(), edited)


@pytest.mark.parametrize("mode", MODES)
def test_weights_are_restored_to_the_bit_whatever_came_between(
    make: Callable[..., Rig], tmp_path: Path, mode: str
) -> None:
    rig = make(mode, dtype="bfloat16")
    before = rig.weights()
    file = adapter(tmp_path / "a.safetensors")
    for scales in ((0.3,), (0.3, 1.7), (-2.0,), ()):
        rig.edits.apply([LoraSpec(file, scale, ("transformer",)) for scale in scales])
    assert same(rig.weights(), before)


@pytest.mark.parametrize("mode", MODES)
def test_a_merge_is_up_times_down_times_alpha_over_rank(make: Callable[..., Rig], tmp_path: Path, mode: str) -> None:
    rig = make(mode)
    before, other = rig.weights(), rig.weights("transformer_2")
    rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 0.5, ("transformer",))])
    after = rig.weights()
    for layer, alpha in ((0, 4.0), (1, 2.0)):
        halves = pair("x", layer)
        added = 0.5 * alpha / 2 * (halves["x.lora_B.weight"] @ halves["x.lora_A.weight"])
        name = f"blocks.{layer}.attn1.to_q.weight"
        assert torch.allclose(after[name], before[name] + added, atol=1e-6)
    assert torch.equal(after["blocks.2.attn1.to_q.bias"], before["blocks.2.attn1.to_q.bias"] + 0.5 * 0.25)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert len(changed) == 9
    assert same(rig.weights("transformer_2"), other)


def test_alpha_may_stand_in_the_metadata(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make("component-offload")
    before = rig.weights()
    stored = {"transformer.lora_alpha": 6.0, "transformer.alpha_pattern": {"to_k": 1.0}}
    tensors = pair("transformer.blocks.0.attn1.to_v", 0) | pair("transformer.blocks.0.attn1.to_k", 0)
    metadata = {"format": "pt", "lora_adapter_metadata": json.dumps(stored)}
    save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
    rig.edits.apply([LoraSpec(tmp_path / "a.safetensors", 1.0, ("transformer",))])
    halves, after = pair("x", 0), rig.weights()
    product = halves["x.lora_B.weight"] @ halves["x.lora_A.weight"]
    for name, alpha in (("to_v", 6.0), ("to_k", 1.0)):
        weight = f"blocks.0.attn1.{name}.weight"
        assert torch.allclose(after[weight], before[weight] + alpha / 2 * product, atol=1e-5)


def test_names_of_wans_own_trainers_are_converted(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make("layerwise-offload")
    before = rig.weights()
    tensors = pair("diffusion_model.blocks.0.self_attn.q", 0)
    save_file(tensors, tmp_path / "a.safetensors")
    rig.edits.apply([LoraSpec(tmp_path / "a.safetensors", 1.0, ("transformer",))])
    after = rig.weights()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["blocks.0.attn1.to_q.weight"]


def test_cached_prompts_of_other_weights_are_not_used(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make("component-offload")
    plain = rig.store.identity(*EXPERTS)
    rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))])
    edited = rig.store.identity(*EXPERTS)
    assert edited[0] != plain[0]
    assert edited[1] == plain[1]
    rig.edits.apply([])
    assert rig.store.identity(*EXPERTS) == plain


def test_a_mapped_checkpoint_needs_no_second_copy_of_the_originals(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig = make("layerwise-offload")
    rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))])
    strategy: Any = rig.placed.strategy("transformer", rig.store.module("transformer"))
    addresses = {tensor.data_ptr() for tensor in strategy.origins().values()}
    kept = rig.edits.originals("transformer")
    assert len(kept) == 9
    assert {tensor.data_ptr() for tensor in kept.values()} <= addresses


@pytest.mark.parametrize("mode", MODES)
def test_an_edit_that_fails_gives_the_weights_back(
    make: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    import framework.runtime.weight_edits as module

    rig = make(mode)
    before = rig.weights()
    original, calls = module._merged, []

    def fail(*arguments: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError("planted")
        return original(*arguments)

    monkeypatch.setattr(module, "_merged", fail)
    with pytest.raises(MemoryError):
        rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))])
    assert same(rig.weights(), before)


def test_a_copy_that_fails_in_an_edit_is_one_line_and_gives_the_weights_back(
    make: Callable[..., Rig], tmp_path: Path, sim: World
) -> None:
    rig = make("resident")
    before, loras = rig.weights(), [LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))]
    for nth, direction in ((3, "d2h"), (12, "h2d")):  # nine originals come first
        sim.faults.fail_copy(nth)
        with pytest.raises(
            FrameworkError, match=rf"^component 'transformer': its adapters .* merged: copy {direction}"
        ):
            rig.edits.apply(loras)
        assert same(rig.weights(), before)
    rig.edits.apply(loras)
    assert not same(rig.weights(), before)


@pytest.mark.parametrize("mode", MODES)
def test_an_edit_whose_weights_cannot_come_back_to_the_device_can_still_be_undone(
    make: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    rig = make(mode)
    before, expected = rig.weights(), rig.run()
    strategy: Any = rig.placed.strategy("transformer", rig.store.module("transformer"))

    def fail() -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(strategy, "place", fail, raising=False)
    with pytest.raises(FrameworkError, match="its adapters cannot be merged: planted"):
        rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))])
    del strategy
    rig.edits.apply([])
    assert same(rig.weights(), before)
    assert torch.equal(rig.run(), expected)


@pytest.mark.parametrize("mode", MODES)
def test_an_edit_that_fails_over_another_can_still_be_undone(
    make: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    import framework.runtime.weight_edits as module

    rig = make(mode)
    before = rig.weights()
    file = adapter(tmp_path / "a.safetensors")
    rig.edits.apply([LoraSpec(file, 1.0, ("transformer",))])

    def fail(*_: Any) -> None:
        raise MemoryError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(module, "_refuse_ties", fail)
        with pytest.raises(MemoryError):
            rig.edits.apply([LoraSpec(file, 2.0, ("transformer",))])
    assert not same(rig.weights(), before), "the edit before still holds"
    rig.edits.apply([])
    assert same(rig.weights(), before)


# Refused before anything changes


def refusal(rig: Rig, lora: LoraSpec) -> str:
    before = rig.weights()
    with pytest.raises((ConfigError, LoadError)) as caught:
        rig.edits.apply([lora])
    assert same(rig.weights(), before)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_merged_is_named(make: Callable[..., Rig], tmp_path: Path) -> None:
    rig, file = make("component-offload"), tmp_path / "a.safetensors"
    everywhere = ("transformer",)
    adapter(file)
    assert "does not say which of transformer, transformer_2 it is for" in refusal(rig, LoraSpec(file))
    unknown = refusal(rig, LoraSpec(file, 1.0, ("transformers",)))
    assert "no component 'transformers'; did you mean 'transformer'?" in unknown
    save_file(pair("transformer.blocks.0.attn1.to_qq", 0), file)
    assert "has no weight 'blocks.0.attn1.to_qq.weight'; did you mean" in refusal(rig, LoraSpec(file, 1.0, everywhere))
    save_file(pair("transformer.blocks.0.attn1.to_q", 0, out=7), file)
    assert "is (24, 24), the adapter's is (7, 24)" in refusal(rig, LoraSpec(file, 1.0, everywhere))
    save_file({"transformer.blocks.0.attn1.to_q.lora_magnitude_vector": torch.zeros(2)}, file)
    assert "DoRA, LoHa and LoKr are not merged" in refusal(rig, LoraSpec(file, 1.0, everywhere))
    save_file({"transformer.blocks.0.attn1.to_q.lora_A.weight": torch.zeros(2, 24)}, file)
    assert "one half of a LoRA pair" in refusal(rig, LoraSpec(file, 1.0, everywhere))
    file.write_bytes(b"no")
    assert "not a safetensors file" in refusal(rig, LoraSpec(file, 1.0, everywhere))


@pytest.mark.parametrize("mode", MODES)
def test_what_is_kept_to_undo_an_edit_is_in_the_books_of_the_host(
    mode: str, make: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make(mode, dtype="bfloat16")  # cast, so that no file has the weights as they were
    host = rig.placed.resources.store.host
    before = host.held_bytes
    rig.edits.apply([LoraSpec(adapter(tmp_path / "a.safetensors"), 1.0, ("transformer",))])
    kept = sum(tensor.nbytes for tensor in rig.edits.originals("transformer").values())
    assert host.held_bytes - before == kept > 0
    rig.edits.apply([])
    assert host.held_bytes == before
    host.limit_bytes = before + kept - 1
    with pytest.raises(PlanError, match=r"weights before adapters.*'transformer' takes .* budget\.host is"):
        rig.edits.apply([LoraSpec(tmp_path / "a.safetensors", 1.0, ("transformer",))])
