"""Short builders for resolver tests: components, entries and a resolve that takes keyword layers. No torch."""

from collections.abc import Mapping
from typing import Any

import pytest

from framework.compose.residency import Resolution, resolve
from framework.compose.selectors import group_of
from framework.compose.sources import ComponentFacts, Entry, MachineFacts, Sources
from framework.errors import ConfigError, Origin

Stacks = tuple[int, ...] | None


def facts(**stacks: Stacks) -> dict[str, ComponentFacts]:
    """Components with their layer counts, in the group that their name says."""
    return {name: ComponentFacts(group=group_of(name, None), stack_lengths=lengths) for name, lengths in stacks.items()}


WAN = facts(text_encoder=(24,), transformer=(40,), transformer_2=(40,), connectors=None, vae=(8,))


def entries(layer: str, settings: Mapping[str, Any]) -> tuple[Entry, ...]:
    """One entry for each key; the place names the key."""
    return tuple(Entry(key, value, Origin(layer, f"{layer}.yaml: {key}")) for key, value in settings.items())


def run(
    user: Mapping[str, Any] | None = None,
    components: Mapping[str, ComponentFacts] = WAN,
    machine: MachineFacts | None = None,
    *,
    preset: Mapping[str, Any] | None = None,
    pipeline: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Resolution:
    """Resolve with `user` keys as given, `preset` and `pipeline` as maps of whole keys."""
    sources = Sources(
        user=entries("user", user or {}),
        preset=entries("preset", preset or {}),
        pipeline=entries("pipeline", pipeline or {}),
        **rest,
    )
    return resolve(sources, components, machine)


def modes(*args: Any, **kwargs: Any) -> dict[str, str]:
    """The mode of each component."""
    return {name: placement.mode for name, placement in run(*args, **kwargs).placements.items()}


def errors(*args: Any, **kwargs: Any) -> str:
    """The message of the refusal."""
    with pytest.raises(ConfigError) as caught:
        run(*args, **kwargs)
    return str(caught.value)


def notes(*args: Any, **kwargs: Any) -> str:
    """All notes as one text."""
    return "\n".join(run(*args, **kwargs).notes)
