"""Strategy `request-resident`: on the device from the first use to the end of the request. Imports torch."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from framework.registry import register_strategy
from framework.spec import Placement


@register_strategy("request-resident")
class RequestResident:
    """Copies parameters to the device and, after the request, puts the untouched host ones back; buffers stay."""

    def __init__(self, component: str, module: nn.Module, placement: Placement, device: torch.device) -> None:
        self.component = component
        self._module = module
        self._device = device
        self._host: list[tuple[dict[str, Any], str, nn.Parameter]] = []  # what stood where; empty while idle
        self._dtype: torch.dtype | None = None

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        if self._host and dtype == self._dtype:
            return
        self._put_back()
        copies = self._copies(dtype)  # may run out of memory: nothing has been exchanged yet
        buffers = [(place, name, b.to(self._device)) for place, name, b in slots(self._module, "_buffers")]
        self._host = list(slots(self._module, "_parameters"))
        self._dtype = dtype
        for place, name, parameter in self._host:
            place[name] = copies[id(parameter)]
        for place, name, buffer in buffers:
            place[name] = buffer

    def wait(self) -> None:
        """Nothing to wait for: the copies are ordered before the component's own work."""

    def finish_use(self) -> None:
        if self._dtype is not None:  # copies in another dtype serve one use
            self._put_back()

    def finish_request(self, preferred: bool) -> None:
        if not preferred or self._dtype is not None:
            self._put_back()

    def prefetch(self, beside_active: bool) -> bool:
        self.prepare()
        return True

    def _copies(self, dtype: torch.dtype | None) -> dict[int, nn.Parameter]:
        """Return the parameters on the device, by the id of the host's; what is tied stays tied.

        Only the main dtype is cast: what was kept in float32 on purpose stays.
        """
        parameters = list(self._module.parameters())
        main = main_dtype(parameters)
        copies = {}
        for parameter in parameters:
            wanted = dtype if dtype is not None and parameter.dtype == main else parameter.dtype
            copies[id(parameter)] = nn.Parameter(parameter.detach().to(self._device, wanted), requires_grad=False)
        return copies

    def _put_back(self) -> None:
        for place, name, parameter in self._host:
            place[name] = parameter
        self._host, self._dtype = [], None


def slots(module: nn.Module, kind: str) -> list[tuple[dict[str, Any], str, Any]]:
    """Return (dictionary, name, tensor) of everything in `_parameters` or `_buffers` of `module` and its children."""
    places = (getattr(part, kind) for part in module.modules())
    return [(place, name, tensor) for place in places for name, tensor in place.items() if tensor is not None]


def main_dtype(parameters: list[nn.Parameter]) -> torch.dtype | None:
    """Return the dtype that holds the most bytes."""
    sizes: Counter[torch.dtype] = Counter()
    for parameter in parameters:
        sizes[parameter.dtype] += parameter.nbytes
    return sizes.most_common(1)[0][0] if sizes else None
