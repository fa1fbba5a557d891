"""Specs for tests, built directly: no YAML and no Hydra. torch and diffusers are imported inside functions."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from framework.graph import Graph, build_graph
from framework.paths import EMBEDDED_MODELS
from framework.runtime.events import Event, EventBus
from framework.spec import (
    ComponentSpec,
    ComponentUse,
    ModelSpec,
    NumericsSpec,
    OutputSpec,
    PipelineSpec,
    Placement,
    RequestSpec,
    RunSpec,
    StageSpec,
)

GROUPS = {"text_encoder": "text_encoder", "transformer": "dit", "transformer_2": "dit", "vae": "vae"}
TWO_EXPERTS = ("wan22", "digits")
EXPERTS = (
    ComponentUse(component="transformer", phase="high_noise", start_at_stage_entry=False),
    ComponentUse(component="transformer_2", phase="low_noise", start_at_stage_entry=False),
)
STANDARD_KINDS = {"encode_prompt": "text_encode", "denoise": "denoise", "decode": "decode", "export": "export"}


def model_folder(name: str, tiny_folder: Callable[[str], Path]) -> Path:
    return EMBEDDED_MODELS / name if (EMBEDDED_MODELS / name).is_dir() else tiny_folder(name)


def standard_stages(two_experts: bool, **replaced: StageSpec) -> dict[str, StageSpec]:
    stages = {name: StageSpec(name=name, kind=kind) for name, kind in STANDARD_KINDS.items()}
    if two_experts:
        stages["denoise"] = StageSpec(name="denoise", kind="denoise", component_uses=EXPERTS)
    return {**stages, **replaced}


def pipeline(name: str, tiny_folder: Callable[[str], Path], **changes: Any) -> PipelineSpec:
    """The spec of a tiny pipeline or of `digits`; `changes` replace its fields."""
    names = [part for part in GROUPS if part != "transformer_2" or name in TWO_EXPERTS]
    fields: dict[str, Any] = {
        "name": name,
        "family": "wan",
        "backend": "standard",
        "model": ModelSpec(source=str(model_folder(name, tiny_folder)), dtype="float32"),
        "components": {part: ComponentSpec(name=part, group=GROUPS[part]) for part in names},
        "stages": standard_stages(name in TWO_EXPERTS),
    }
    return PipelineSpec(**{**fields, **changes})


def request(**changes: Any) -> RequestSpec:
    fields: dict[str, Any] = {
        "prompt": "a cat",
        "negative_prompt": "bad",
        "seeds": (7,),
        "height": 32,
        "width": 32,
        "num_frames": 9,
        "num_inference_steps": 3,
        "max_sequence_length": 32,
    }
    return RequestSpec(**{**fields, **changes})


def run_spec(
    spec: PipelineSpec, *requests: RequestSpec, modes: dict[str, str] | None = None, **changes: Any
) -> RunSpec:
    placements = {name: Placement(component=name, group=None, mode=mode) for name, mode in (modes or {}).items()}
    fields: dict[str, Any] = {
        "pipeline": spec,
        "requests": requests or (request(),),
        "placements": placements,
        "numerics": NumericsSpec(),
        "output": OutputSpec(),
        "device": "cpu",
    }
    return RunSpec(**{**fields, **changes})


def load(spec: PipelineSpec) -> tuple[PipelineSpec, Graph, Any]:
    from framework.loading.load import load_store

    graph = build_graph(spec)
    return spec, graph, load_store(spec, graph, {}, EventBus())


class Recorder:
    """A sink that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def run(loaded: tuple[PipelineSpec, Graph, Any], *requests: RequestSpec, **options: Any) -> tuple[Any, Recorder]:
    """Run requests on a loaded store; return the result and what was heard."""
    from framework.runtime.scheduler import run_requests

    spec, graph, store = loaded
    modes = options.pop("modes", None)
    changes = options.pop("changes", {})
    recorder = Recorder()
    options.setdefault("keep", ("latents", "frames"))
    result = run_requests(
        run_spec(spec, *requests, modes=modes, **changes), graph, store, EventBus(recorder), **options
    )
    return result, recorder


def plain(folder: Path, **parts: Any) -> Any:
    """diffusers' own pipeline in float32 with 64-byte aligned weights; `parts` replace components of the folder."""
    import torch
    from diffusers import DiffusionPipeline

    from framework.loading.weights import own_weights

    loaded = DiffusionPipeline.from_pretrained(folder, dtype=torch.float32, **parts)
    for component in loaded.components.values():
        if isinstance(component, torch.nn.Module):
            own_weights(component)
    loaded.set_progress_bar_config(disable=True)
    return loaded


def plain_call(loaded: Any, wanted: RequestSpec, output_type: str) -> Any:
    """Call `loaded` as a script would for `wanted`; returns latents or pictures as diffusers gives them."""
    import torch

    names: Iterable[str] = ("prompt", "negative_prompt", "height", "width", "num_frames", "num_inference_steps")
    names = (*names, "guidance_scale", "guidance_scale_2", "max_sequence_length")
    arguments = {name: getattr(wanted, name) for name in names if getattr(wanted, name) is not None}
    generators = [torch.Generator().manual_seed(seed) for seed in wanted.seeds or ()]
    single = len(generators) == 1
    return loaded(
        **arguments,
        num_videos_per_prompt=len(generators),
        generator=generators[0] if single else generators,
        output_type=output_type,
    ).frames
