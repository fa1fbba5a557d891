"""Tiling and slicing of the VAEs for the time of a run. Imports torch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import nn

from framework.errors import ConfigError
from framework.spec import NumericsSpec

SWITCHES = {"vae_tiling": "tiling", "vae_slicing": "slicing"}
Tell = Callable[[str], None]


@contextmanager
def vae_switches(numerics: NumericsSpec, vaes: Mapping[str, nn.Module], tell: Tell) -> Iterator[None]:
    """Switch tiling and slicing of `vaes` as asked, and back after the block; `auto` leaves them as diffusers has them.

    Raises `ConfigError` where it is asked for and no VAE has it; one line names those without where others have it.
    """
    before = [
        (vae, f"use_{what}", getattr(vae, f"use_{what}", None)) for vae in vaes.values() for what in SWITCHES.values()
    ]
    try:
        for name, what in SWITCHES.items():
            wanted = getattr(numerics, name)
            if wanted != "auto":
                _switch(name, what, bool(wanted), vaes, tell)
        yield
    finally:
        for vae, flag, value in before:
            if value is not None:
                setattr(vae, flag, value)


def _switch(name: str, what: str, wanted: bool, vaes: Mapping[str, nn.Module], tell: Tell) -> None:
    able = {component: vae for component, vae in vaes.items() if hasattr(vae, f"use_{what}")}
    without = [f"'{component}' ({type(vae).__name__})" for component, vae in vaes.items() if component not in able]
    key = f"numerics.{name}"
    if wanted and without and not able:
        raise ConfigError.of(key, f"{' and '.join(without)} has no {what}", hint="remove it")
    if wanted and not vaes:
        tell(f"{key}: no effect, the pipeline uses no VAE")
    elif wanted and without:
        tell(f"{key}: no effect on {', '.join(without)}, which has none")
    for vae in able.values():
        getattr(vae, f"{'enable' if wanted else 'disable'}_{what}")()
