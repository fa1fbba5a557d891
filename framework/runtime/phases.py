"""When a loop passes from its first expert to the second, as diffusers reads it from its config. No torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from framework.spec import ComponentUse


def has_phases(uses: Iterable[ComponentUse]) -> bool:
    """Whether a stage declares several phases."""
    return len({use.phase for use in uses if use.phase is not None}) > 1


def steps_before_switch(options: Mapping[str, Any], scheduler: Any) -> int | None:
    """Return how many steps of the loop that runs now are the first expert's; None: the pipeline has no boundary.

    As in `WanPipeline.__call__`: the first expert has the timesteps from `boundary_ratio` of the training's number on.
    Waits for the device where the timesteps are there, so ask once in a loop.
    """
    ratio = options.get("boundary_ratio")
    timesteps = getattr(scheduler, "timesteps", None)
    if ratio is None or timesteps is None:
        return None
    boundary: float = ratio * scheduler.config.num_train_timesteps
    return len([timestep for timestep in timesteps.tolist() if timestep >= boundary])
