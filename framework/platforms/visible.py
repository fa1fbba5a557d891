"""Which simulated devices a process may use, as CUDA_VISIBLE_DEVICES says it of real ones. No torch."""

import os

from framework.errors import ConfigError

SIM_VARIABLE = "FRAMEWORK_SIM_DEVICES"
"""Numbers of simulated devices, such as `3,5`; the process knows them as 0 and 1. Unset: as many as it asks for."""


def check_visible(index: int) -> None:
    """Raise `ConfigError` for a simulated device that this process is not shown."""
    shown = os.environ.get(SIM_VARIABLE)
    if shown is None:
        return
    count = len([part for part in shown.split(",") if part.strip()])
    if index >= count:
        last = f"the last one is sim:{count - 1}" if count else f"{SIM_VARIABLE} shows none"
        raise ConfigError.of("device", f"there is no sim:{index}", hint=last)
