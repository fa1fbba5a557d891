"""Random generators of the simulated device. Imports torch."""

from typing import Any

import torch


class SimGenerator(torch.Generator):
    """Says it belongs to `sim` and draws the host generator's numbers.

    `torch.Generator("sim")` itself cannot be made: PyTorch asks a C++ backend for it.
    """

    _sim_device: torch.device

    def __new__(cls, device: Any = "sim:0") -> "SimGenerator":
        generator = super().__new__(cls)
        generator._sim_device = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._sim_device
