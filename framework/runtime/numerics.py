"""Applying what may change the picture, before the first request. Imports torch inside its functions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from framework.errors import ConfigError, Problem
from framework.quantization import capability_problems
from framework.runtime.store import ComponentStore
from framework.spec import NumericsSpec, Placement

VAE_SWITCHES = {"vae_tiling": "tiling", "vae_slicing": "slicing"}
OFF = {"attention": "sdpa", "compile": "off", "step_cache": "off"}


@contextmanager
def applied_numerics(numerics: NumericsSpec, store: ComponentStore) -> Iterator[None]:
    """Set VAE tiling and slicing on the store's VAE, and deterministic kernels for the block.

    `auto` leaves the VAE as diffusers has it, which is off. Raises `ConfigError` for what this version cannot do.
    """
    import torch

    refuse_unsupported(numerics)
    _set_vae_switches(numerics, store)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(numerics.deterministic or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _set_vae_switches(numerics: NumericsSpec, store: ComponentStore) -> None:
    vae = store.components.get("vae")
    for name, what in VAE_SWITCHES.items():
        value = getattr(numerics, name)
        if value == "auto" or vae is None:
            continue
        switch = getattr(vae, f"{'enable' if value else 'disable'}_{what}", None)
        if switch is None:
            raise ConfigError.of(f"numerics.{name}", f"{type(vae).__name__} has no {what}")
        switch()


def refuse_incapable(numerics: NumericsSpec, placements: Mapping[str, Placement], kind: str) -> None:
    """Raise `ConfigError` for quantised components that cannot have their mode, this device, or lack a package."""
    modes = {name: placement.mode for name, placement in placements.items()}
    problems = list(capability_problems(numerics.quantize, modes, kind))
    if problems:
        raise ConfigError(problems)


def refuse_unsupported(numerics: NumericsSpec) -> None:
    """Raise `ConfigError` for every setting that asks for more than this version does."""
    problems = [
        Problem(f"numerics.{name}", f"only '{known}' is supported", hint=f"remove '{getattr(numerics, name)}'")
        for name, known in OFF.items()
        if getattr(numerics, name) != known
    ]
    if problems:
        raise ConfigError(problems)
