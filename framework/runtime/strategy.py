"""What a residency strategy is: the code that carries out one mode for one component. No torch at import.

Registered by mode name with `@register_strategy("my-mode")`; the manager builds one object for each component as
`cls(component, module, placement, device)` and calls it in the order of the methods below.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn

    from framework.spec import Placement


class Strategy(Protocol):
    """Moves one component's weights; no method may leave them half moved when it raises."""

    def __init__(self, component: str, module: "nn.Module", placement: "Placement", device: "torch.device") -> None: ...

    def prepare(self, dtype: "torch.dtype | None" = None) -> None:
        """Start to make the component ready; may return before it is. `dtype` None: as loaded."""

    def wait(self) -> None:
        """Return when the component may be called."""

    def finish_use(self) -> None:
        """The use is over: give up what the mode does not keep between uses."""

    def finish_request(self, preferred: bool) -> None:
        """The request is over; `preferred` asks to be ready early in the next one. Must leave the idle state."""

    def prefetch(self, beside_active: bool) -> bool:
        """Start `prepare` early and return whether that was done; `beside_active`: another component is in use."""
