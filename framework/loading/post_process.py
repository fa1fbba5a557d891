"""Work that a format wants done with a whole component on the device before it may be placed. Imports torch."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

from framework.errors import LoadError, PlanError
from framework.memory.relocate import relocate

PostProcess: TypeAlias = Callable[[nn.Module], None]
"""Changes a module in place; its weights lie on the execution device. Packing of quantised weights is such work."""


def post_process_on(device: torch.device, component: str, module: nn.Module, process: PostProcess) -> None:
    """Bring all of `module` to `device`, run `process` there and leave it there: placing it comes afterwards.

    Raises `PlanError` where the component does not fit on the device whole, and `LoadError` when `process` fails.
    """
    try:
        relocate(module, device)
        with torch.no_grad():
            process(module)
    except torch.OutOfMemoryError as error:
        raise PlanError(
            f"component '{component}': its format is finished on the device, which needs all of its weights there "
            f"once, whatever its mode: {str(error).splitlines()[0]}"
        ) from error
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LoadError(f"component '{component}': finishing its format on the device failed: {reason}") from error
