"""Applying what may change the picture, before the first request. Imports torch inside its functions."""

from framework.errors import ConfigError, Problem
from framework.runtime.store import ComponentStore
from framework.spec import NumericsSpec

VAE_SWITCHES = {"vae_tiling": "tiling", "vae_slicing": "slicing"}
OFF = {"attention": "sdpa", "compile": "off", "step_cache": "off"}


def apply_numerics(numerics: NumericsSpec, store: ComponentStore) -> None:
    """Set VAE tiling, VAE slicing and determinism on the store's components.

    `auto` leaves the VAE as diffusers has it, which is off. Raises `ConfigError` for what this version cannot do.
    """
    refuse_unsupported(numerics)
    vae = store.components.get("vae")
    for name, what in VAE_SWITCHES.items():
        value = getattr(numerics, name)
        if value == "auto" or vae is None:
            continue
        switch = getattr(vae, f"{'enable' if value else 'disable'}_{what}", None)
        if switch is None:
            raise ConfigError.of(f"numerics.{name}", f"{type(vae).__name__} has no {what}")
        switch()
    if numerics.deterministic:
        import torch

        torch.use_deterministic_algorithms(True)


def refuse_unsupported(numerics: NumericsSpec) -> None:
    """Raise `ConfigError` for every setting that asks for more than this version does."""
    problems = [
        Problem(f"numerics.{name}", f"only '{known}' is supported", hint=f"remove '{getattr(numerics, name)}'")
        for name, known in OFF.items()
        if getattr(numerics, name) != known
    ]
    if numerics.quantize:
        problems.append(Problem("numerics.quantize", "quantisation is not supported"))
    if problems:
        raise ConfigError(problems)
