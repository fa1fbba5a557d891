"""Strategy `resident`: weights stay on the execution device from the first use on. Imports torch."""

from collections.abc import Callable

import torch
from torch import nn

from framework.registry import register_strategy
from framework.spec import Placement

Undo = Callable[[], None]


@register_strategy("resident")
class Resident:
    """Moves a component once; a use in another dtype gets cast copies, which the end of the use drops."""

    def __init__(self, component: str, module: nn.Module, placement: Placement, device: torch.device) -> None:
        self.component = component
        self._module = module
        self._device = device
        self._placed = False
        self._undo: Undo | None = None

    def prepare(self, dtype: torch.dtype | None = None) -> None:
        if not self._placed:
            self._module.to(self._device)
            self._placed = True
        if dtype is not None:
            self._restore_dtype()
            self._undo = cast_parameters(self._module, dtype)

    def wait(self) -> None:
        """Nothing to wait for: the move is ordered before the component's own work."""

    def finish_use(self) -> None:
        self._restore_dtype()

    def finish_request(self, preferred: bool) -> None:
        self._restore_dtype()

    def prefetch(self, beside_active: bool) -> bool:
        self.prepare()
        return True

    def _restore_dtype(self) -> None:
        if self._undo is not None:
            self._undo()
            self._undo = None


def cast_parameters(module: nn.Module, dtype: torch.dtype) -> Undo:
    """Give `module` copies of its weights in `dtype`; return the call that puts the originals back.

    Only weights of the module's main dtype are cast: what was kept in float32 on purpose stays. Ties stay ties.
    """
    parameters = list(module.parameters())
    main = parameters[0].dtype if len({p.dtype for p in parameters}) == 1 else _main_dtype(parameters)
    kept: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
    copies: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.dtype == main != dtype:
                kept.append((part._parameters, name, parameter))
                if id(parameter) not in copies:
                    copies[id(parameter)] = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
    for slots, name, parameter in kept:
        slots[name] = copies[id(parameter)]

    def undo() -> None:
        for slots, name, parameter in kept:
            slots[name] = parameter

    return undo


def _main_dtype(parameters: list[nn.Parameter]) -> torch.dtype:
    sizes: dict[torch.dtype, int] = {}
    for parameter in parameters:
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.nbytes
    return max(sizes, key=lambda dtype: sizes[dtype])
