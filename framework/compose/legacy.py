"""The option names of the system whose configs we read: what each one became here, or why it is refused. No torch.

`python -m framework.compose.legacy` prints docs/legacy-keys.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from framework.compose.selectors import fold_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyKey:
    """One legacy key: how it is read (`kind`), the key it became, and what folding does to it.

    `scope` is a name of `LEGACY_SCOPES`; `knob` the knob that a tuning key sets.
    """

    kind: str
    new: str
    meaning: str
    scope: str = ""
    knob: str = ""


def _cpu_offload(scope: str, whom: str) -> LegacyKey:
    meaning = f"true: component-offload, false: resident, for {whom}; any other residency key beats it"
    return LegacyKey(kind="cpu_flag", new="component_residency", meaning=meaning, scope=scope)


def _scalar(knob: str, remark: str) -> LegacyKey:
    return LegacyKey(
        kind="scalar", new=f"layerwise.dit.{knob}", meaning=f"for the DiTs; {remark}", scope="dit", knob=knob
    )


def _map(knob: str, remark: str) -> LegacyKey:
    meaning = f"a map, JSON text or COMPONENT=VALUE pairs, groups included; {remark}"
    return LegacyKey(kind="map", new=f"layerwise.COMPONENT.{knob}", meaning=meaning, knob=knob)


_PREFETCH = "0 meant one layer ahead and is read as 1 (on mps it stays 0)"
_RESIDENT = "the policy becomes strided unless one is given"
_POLICY = "leading or strided"

LEGACY_KEYS: Mapping[str, LegacyKey] = {
    "dit_cpu_offload": _cpu_offload(
        "dit_cpu", "the DiTs, connectors, dual_tower_bridge, unconditional_transformer and vision_language_encoder"
    ),
    "text_encoder_cpu_offload": _cpu_offload("text_encoder", "the text encoders"),
    "image_encoder_cpu_offload": _cpu_offload("image_encoder", "the image encoder"),
    "vae_cpu_offload": _cpu_offload(
        "vae_cpu", "the VAEs, vocoder, spatial_upsampler, condition_image_encoder and sound_tokenizer"
    ),
    "cpu_offload_components": LegacyKey(
        kind="cpu_list",
        new="component_residency",
        meaning="component-offload for every name or group in the list; `none` alone: everything resident",
    ),
    "dit_layerwise_offload": LegacyKey(
        kind="layerwise_flag",
        new="component_residency",
        meaning="true: layerwise-offload for the DiTs; false: resident for what dit_cpu_offload covers, "
        "unless another residency key says otherwise",
    ),
    "layerwise_offload_components": LegacyKey(
        kind="layerwise_list",
        new="component_residency",
        meaning="layerwise-offload for every name or group in the list; `default`: text_encoder, image_encoder, vae; "
        "`vae` covers vae, video_vae and condition_image_encoder only",
    ),
    "dit_offload_prefetch_size": _scalar("prefetch", _PREFETCH),
    "dit_layerwise_resident_layers": _scalar("resident", _RESIDENT),
    "dit_layerwise_residency_policy": _scalar("policy", _POLICY),
    "layerwise_prefetch_size": _map("prefetch", _PREFETCH),
    "layerwise_resident_layers": _map("resident", _RESIDENT),
    "layerwise_residency_policy": _map("policy", _POLICY),
    "use_fsdp_inference": LegacyKey(
        kind="fsdp",
        new="component_residency",
        meaning="true: resident for the DiTs that no other key of yours places; whole copies are kept, "
        "nothing is sharded; refused together with component-offload of a DiT",
        scope="dit",
    ),
    "pin_cpu_memory": LegacyKey(
        kind="pin", new="budget.pinned", meaning="false: budget.pinned=0; true: the default, nothing to set"
    ),
    "performance_mode": LegacyKey(
        kind="performance", new="performance_mode", meaning="still a key: manual, speed or memory; auto is refused"
    ),
    "offload_during_compile": LegacyKey(
        kind="compile",
        new="component_residency",
        meaning="false is how it always is here; true is refused: placement never changes during a run, "
        "use numerics.compile=blocks with component_residency=dit=layerwise-offload",
    ),
    "warmup_mode": LegacyKey(kind="warmup", new="warmup", meaning="off and request; server is refused, use request"),
}

ALIASES: Mapping[str, str] = {"layerwise_offload_modules": "layerwise_offload_components", "mode": "performance_mode"}

_SERVER = "there is no server here; see `run` with `requests=@file.jsonl`, or `sweep`"
_PARALLEL = "one request runs on one device here; `sweep` uses several devices for several jobs"

REFUSED: Mapping[str, str] = {
    "ltx2_two_stage_device_mode": "use component_residency: `all=resident` for `resident`, nothing for `original`",
    "auto_layerwise_resident_layers": "use layerwise.COMPONENT.resident",
    "attention_backend": "use numerics.attention",
    "backend": "use pipeline.backend",
    "base_gpu_id": "use device=cuda:N",
    "boundary_ratio": "it is read from the checkpoint's model_index.json",
    "cache_dit_config": "use numerics.step_cache",
    "cfg_parallel_degree": _PARALLEL,
    "cfg_parallel_size": _PARALLEL,
    "component_paths": "use pipeline.components.NAME.source",
    "data_parallel_size": _PARALLEL,
    "direct_gpu_weight_loading": "resident components are always loaded straight to the device",
    "disagg_role": _SERVER,
    "dit_precision": "use pipeline.components.transformer.dtype",
    "dp": _PARALLEL,
    "dp_size": _PARALLEL,
    "enable_cfg_parallel": _PARALLEL,
    "enable_torch_compile": "use numerics.compile=blocks",
    "flow_shift": "use pipeline.scheduler.flow_shift",
    "host": _SERVER,
    "hsdp_replicate_dim": _PARALLEL,
    "hsdp_shard_dim": _PARALLEL,
    "image_encoder_precision": "use pipeline.components.image_encoder.dtype",
    "log_level": "use log.level",
    "lora_path": "use loras",
    "lora_nickname": "use loras",
    "lora_scale": "use loras",
    "model_id": "use pipeline=NAME",
    "model_path": "use pipeline.model.source",
    "num_gpus": _PARALLEL,
    "output_file_path": "use output.root and output.name",
    "output_path": "use output.root",
    "port": _SERVER,
    "prompt_file_path": "use requests=@file.jsonl",
    "quantization": "use numerics.quantize",
    "revision": "use pipeline.model.revision",
    "ring_degree": _PARALLEL,
    "scheduler_port": _SERVER,
    "sp_degree": _PARALLEL,
    "tensor_parallel_size": _PARALLEL,
    "text_encoder_precisions": "use pipeline.components.text_encoder.dtype",
    "tp_size": _PARALLEL,
    "trust_remote_code": "use pipeline.model.trust_remote_code",
    "ulysses_degree": _PARALLEL,
    "vae_precision": "use pipeline.components.vae.dtype",
    "vae_sp": _PARALLEL,
    "vae_tiling": "use numerics.vae_tiling",
    "warmup_num_frames": "use warmup=request; it runs the request's own size",
    "warmup_resolutions": "use warmup=request; it runs the request's own size",
    "warmup_steps": "use warmup=request",
}


def legacy_name(key: str) -> str | None:
    """The legacy key that the first part of `key` names, aliases, case and hyphens folded; None if it is none."""
    head = fold_selector(key.partition(".")[0])
    name = ALIASES.get(head, head)
    return name if name in LEGACY_KEYS else None


def refusal(key: str) -> str | None:
    """What to use in place of a legacy key that has no counterpart here; None for any other key."""
    return REFUSED.get(fold_selector(key.partition(".")[0]))


def page() -> str:
    """The text of docs/legacy-keys.md."""
    aliases = {name: [alias for alias, target in ALIASES.items() if target == name] for name in LEGACY_KEYS}
    rows = [
        f"| {', '.join(f'`{each}`' for each in (name, *aliases[name]))} | `{key.new}` | {key.meaning} |"
        for name, key in LEGACY_KEYS.items()
    ]
    refused = [f"| `{name}` | {text} |" for name, text in sorted(REFUSED.items())]
    return "\n".join(
        [
            "# Legacy keys",
            "",
            "<!-- written by `python -m framework.compose.legacy`; edit framework/compose/legacy.py instead -->",
            "",
            "These keys stand at the top level of a config or on the command line. Each one is folded into its new",
            "key with one line that names both. Names fold case and `-` against `_`. Booleans may be text:",
            "`true on yes y t 1` and `false off no n f 0`. An unset key (`null`) says nothing; `false` is a choice.",
            "Among your own keys a canonical one beats every legacy one. Among legacy keys, for one component:",
            "layerwise-offload asked for, then `cpu_offload_components`, then the `*_cpu_offload` flags, then",
            "`dit_layerwise_offload=false`, then `use_fsdp_inference`. They may be mixed.",
            "",
            "| legacy key | new key | how it is read |",
            "|---|---|---|",
            *rows,
            "",
            "## Refused by name",
            "",
            "| legacy key | what to use |",
            "|---|---|",
            *refused,
            "",
        ]
    )


if __name__ == "__main__":
    print(page(), end="")
