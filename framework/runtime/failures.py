"""What a failed run says: stage, step, component, layer, what lies on the device, what would help. Imports torch."""

import traceback
from collections.abc import Collection, Iterator

from torch import nn

from framework.runtime.placed import Placed, first_line
from framework.runtime.sharing import MIB

_LAYER = "__framework_layer__"


def layer_of(error: BaseException, module: nn.Module | None) -> str | None:
    """Return the dotted name of the deepest part of `module` that was running when `error` was raised."""
    if module is None:
        return None
    names = {id(part): name for name, part in module.named_modules()}
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        running = frame.f_locals.get("self")
        if isinstance(running, nn.Module) and names.get(id(running)):
            found = names[id(running)]
    return found


def mark_layer(error: BaseException, layer: str | None) -> None:
    """Remember the layer with an error whose frames are about to be cleared."""
    if layer is not None and not hasattr(error, _LAYER):
        setattr(error, _LAYER, layer)


def marked_layer(error: BaseException) -> str | None:
    found = getattr(error, _LAYER, None)
    return str(found) if found is not None else None


def failure_line(
    stage: str, step: tuple[int, int] | None, component: str | None, layer: str | None, error: BaseException
) -> str:
    """Return the one line that says where a run failed; `step` is (steps done, all steps)."""
    place = f" in step {step[0] + 1} of {step[1]}" if step and step[0] < step[1] else ""
    inside = f" in component '{component}'" if component else ""
    deeper = f", layer '{layer}'" if component and layer else ""
    text = first_line(error) if str(error).strip() else "no message"
    return f"stage '{stage}' failed{place}{inside}{deeper}: {type(error).__name__}: {text}"


def ledger_lines(placed: Placed, in_use: Collection[str]) -> Iterator[str]:
    """Yield what lies on the device, beside what the plan has for each component; nothing where memory is one."""
    platform = placed.resources.platform
    if platform.unified:
        return
    figures, footprints = platform.memory(), placed.footprints()
    total = figures.allocated_bytes + figures.free_bytes
    yield (
        f"device memory: {figures.allocated_bytes / MIB:.1f} of {total / MIB:.1f} MiB allocated, "
        f"peak {figures.peak_bytes / MIB:.1f} MiB"
    )
    weights = 0
    for name, size in footprints.items():
        now = size.used_bytes if name in in_use else size.idle_bytes
        weights += now
        state = "in use" if name in in_use else "idle"
        planned = f"planned {size.used_bytes / MIB:.1f} in a use, {size.idle_bytes / MIB:.1f} between"
        yield f"  {name} ({placed.mode(name)}, {state}): {now / MIB:.1f} MiB of weights; {planned}"
    yield f"  everything else, such as activations: {max(0, figures.allocated_bytes - weights) / MIB:.1f} MiB"
