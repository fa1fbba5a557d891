"""The step caches of diffusers, their options and what each needs: one table. No torch.

A step cache reuses what an earlier denoising step computed, so the picture is another one: it is named lossy wherever
it is printed. `CACHES` is checked while composing, and `docs/numerics.md` prints it; a test compares it with diffusers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from framework.errors import Problem, did_you_mean

KEY = "numerics.step_cache"
OFF = (None, "off", False)
RANGE = "two numbers"
TEXTS = "a list of texts"
NUMBERS = "a list of numbers"
NUMBER, COUNT, SWITCH, TEXT = "a number", "a whole number", "true or false", "a text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache: `config` is its class in diffusers, `options` what each takes.

    `one_pass`: it keeps one state, so it is right only where a step calls the denoiser once. `contexts`: the pipeline
    has to name its passes. `timestep`: it asks the pipeline for the step's time. `skips_blocks`: whole blocks are left
    out, so a streamed model copies less. `required` options have no default.
    """

    name: str
    config: str
    what: str
    options: Mapping[str, str]
    required: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    one_pass: bool = False
    contexts: bool = False
    timestep: bool = False
    skips_blocks: bool = False


def _kinds(kinds: Sequence[str], *places: str) -> tuple[str, ...]:
    return tuple(f"{kind}_attention_{place}" for place in places for kind in kinds)


_PYRAMID = ("spatial", "temporal", "cross")
_FASTER = ("spatial", "temporal")

CACHES: Mapping[str, Cache] = MappingProxyType(
    {
        cache.name: cache
        for cache in (
            Cache(
                name="first_block",
                config="FirstBlockCacheConfig",
                what="leaves out all blocks but the first where the first changes little",
                options={"threshold": NUMBER},
                contexts=True,
                skips_blocks=True,
            ),
            Cache(
                name="magcache",
                config="MagCacheConfig",
                what="leaves out all blocks by magnitudes measured for the model",
                options={
                    "threshold": NUMBER,
                    "max_skip_steps": COUNT,
                    "retention_ratio": NUMBER,
                    "num_inference_steps": COUNT,
                    "mag_ratios": NUMBERS,
                },
                required=("mag_ratios",),
                contexts=True,
                skips_blocks=True,
            ),
            Cache(
                name="pyramid_attention",
                config="PyramidAttentionBroadcastConfig",
                what="reuses attention for some steps",
                options={
                    **dict.fromkeys(_kinds(_PYRAMID, "block_skip_range"), COUNT),
                    **dict.fromkeys(_kinds(_PYRAMID, "timestep_skip_range"), RANGE),
                    **dict.fromkeys(_kinds(_PYRAMID, "block_identifiers"), TEXTS),
                },
                defaults={"spatial_attention_block_skip_range": 2},
                one_pass=True,
                timestep=True,
            ),
            Cache(
                name="fastercache",
                config="FasterCacheConfig",
                what="reuses attention, and guesses the unconditional half of a batch",
                options={
                    **dict.fromkeys(_kinds(_FASTER, "block_skip_range"), COUNT),
                    **dict.fromkeys(_kinds(_FASTER, "timestep_skip_range"), RANGE),
                    **dict.fromkeys(_kinds(_FASTER, "block_identifiers"), TEXTS),
                    "low_frequency_weight_update_timestep_range": RANGE,
                    "high_frequency_weight_update_timestep_range": RANGE,
                    "alpha_low_frequency": NUMBER,
                    "alpha_high_frequency": NUMBER,
                    "unconditional_batch_skip_range": COUNT,
                    "unconditional_batch_timestep_skip_range": RANGE,
                    "tensor_format": TEXT,
                    "is_guidance_distilled": SWITCH,
                },
                one_pass=True,
                timestep=True,
            ),
            Cache(
                name="taylorseer",
                config="TaylorSeerCacheConfig",
                what="foretells outputs from earlier steps",
                options={
                    "cache_interval": COUNT,
                    "disable_cache_before_step": COUNT,
                    "disable_cache_after_step": COUNT,
                    "max_order": COUNT,
                    "taylor_factors_dtype": TEXT,
                    "skip_predict_identifiers": TEXTS,
                    "cache_identifiers": TEXTS,
                    "use_lite_mode": SWITCH,
                },
                contexts=True,
            ),
        )
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "first_block_cache": "first_block",
        "firstblockcache": "first_block",
        "fbcache": "first_block",
        "mag_cache": "magcache",
        "pab": "pyramid_attention",
        "pyramid_attention_broadcast": "pyramid_attention",
        "faster_cache": "fastercache",
        "taylor_seer": "taylorseer",
    }
)

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "teacache": "diffusers has no TeaCache",
        "cache_dit": "cache-dit is no part of diffusers",
        "seacache": "diffusers' SeaCache needs code for each model",
        "textkvcache": "diffusers' TextKV cache is made for one model only",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCache:
    """A chosen cache with the options that were said, as (name, value) in the order of the names."""

    method: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def cache(self) -> Cache:
        return CACHES[self.method]

    def __str__(self) -> str:
        said = ", ".join(f"{name} {_shown(value)}" for name, value in self.options)
        return f"{self.method} ({said})" if said else self.method


def read_step_cache(value: Any) -> tuple[StepCache | None, list[Problem]]:
    """Read the key: `off`, the name of a cache, or a map of `method` and `options`; problems instead of raising."""
    said: dict[str, Any] = {"method": value} if isinstance(value, str | bool) else dict(value or {})
    name, options = said.get("method"), said.get("options") or {}
    if name in OFF:
        lacks = [Problem(KEY, "the key 'method' is required", hint=did_you_mean("", CACHES))]
        return None, lacks if name is None and said else []
    folded = str(name).strip().lower().replace("-", "_")
    cache = CACHES.get(ALIASES.get(folded, folded))
    if cache is None:
        reason = REFUSED.get(folded) or REFUSED.get(folded.replace("_", "")) or f"unknown step cache '{name}'"
        hint = f"use {', '.join(CACHES)}" if not reason.startswith("unknown") else did_you_mean(str(name), CACHES)
        return None, [Problem(_key(value), reason, hint=hint)]
    problems = list(_option_problems(cache, options))
    frozen = tuple(sorted((name, _frozen(found)) for name, found in options.items() if found is not None))
    return StepCache(method=cache.name, options=frozen), problems


def _option_problems(cache: Cache, options: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for name, value in options.items():
        kind = cache.options.get(name)
        if kind is None:
            reason, hint = f"{cache.name} has no option '{name}'", did_you_mean(name, cache.options)
            problems.append(Problem(f"{KEY}.options.{name}", reason, hint=hint))
        elif value is not None and not _fits(kind, value):
            problems.append(Problem(f"{KEY}.options.{name}", f"must be {kind}, got {value!r}"))
    for name in cache.required:
        if options.get(name) is None:
            reason = f"{cache.name} needs the option '{name}', which depends on the model"
            problems.append(Problem(KEY, reason, hint=f"set {KEY}.options.{name}"))
    return problems


def _fits(kind: str, value: Any) -> bool:
    """Whether `value` is of a kind of option."""
    if kind == SWITCH:
        return isinstance(value, bool)
    if kind == TEXT:
        return isinstance(value, str)
    if kind in (COUNT, NUMBER):
        return isinstance(value, int if kind == COUNT else int | float) and not isinstance(value, bool)
    if not isinstance(value, list | tuple):
        return False
    if kind == TEXTS:
        return all(isinstance(part, str) for part in value)
    return all(_fits(NUMBER, part) for part in value) and bool(value) and (kind == NUMBERS or len(value) == 2)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _shown(value: Any) -> str:
    return "-".join(str(part) for part in value) if isinstance(value, tuple) and len(value) < 4 else str(value)


def _key(value: Any) -> str:
    return KEY if isinstance(value, str) else f"{KEY}.method"


def cache_table() -> str:
    """The table as Markdown, for `docs/numerics.md`."""
    head = ("`method`", "what it does", "streamed models copy less", "needs", "`options`")
    rows = [
        (f"`{cache.name}`", cache.what, "yes" if cache.skips_blocks else "no", _needs(cache), _option_names(cache))
        for cache in CACHES.values()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _option_names(cache: Cache) -> str:
    return ", ".join(f"`{name}`" + (" (required)" if name in cache.required else "") for name in cache.options)


def _needs(cache: Cache) -> str:
    needs = [
        text
        for said, text in (
            (cache.contexts, "a pipeline that names its passes"),
            (cache.timestep, "a pipeline that tells its timestep"),
            (cache.one_pass, "one call a step"),
        )
        if said
    ]
    return ", ".join(needs)
