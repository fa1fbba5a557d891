"""What a residency strategy is: the code that carries out one mode for one component. No torch at import.

Registered by mode name with `@register_strategy("my-mode")`. One object is built for each component, before the first
request, as `cls(component, module, placement, device)`; a constructor with a parameter `resources` also gets what all
components share (`framework.memory.resources.Resources`). Methods are called outside inference mode, in this order.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn

    from framework.spec import Placement


class Strategy(Protocol):
    """Moves one component's weights; no method may leave them half moved when it raises.

    Optional: `place()` brings what stays on the device between uses; `detach()` gives the component up and leaves its
    weights in the module (without it, `finish_request(False)` has to); `misplaced()` returns the names of tensors that
    other code has moved, asked after every stage; `expect_steps(done, total)` hears how far the loop of a use is, and
    `forget_length()` that a use was shorter than those to come; `device_bytes` and `idle_bytes` are the device bytes of
    its weights in a use and between uses.
    """

    def __init__(self, component: str, module: "nn.Module", placement: "Placement", device: "torch.device") -> None: ...

    def prepare(self, dtype: "torch.dtype | None" = None) -> None:
        """Start to make the component ready; may return before it is. `dtype` None: as loaded."""

    def wait(self) -> None:
        """Return when the component may be called."""

    def finish_use(self) -> None:
        """The use is over: give up what the mode does not keep between uses."""

    def finish_request(self, preferred: bool) -> None:
        """The request is over: be idle. `preferred`, after a warm-up only: be ready early in the next request."""

    def prefetch(self, beside_active: bool) -> bool:
        """Start `prepare` early and return whether that was done; `beside_active`: another component is in use.

        May be followed by `finish_use` alone, where the use does not come.
        """
