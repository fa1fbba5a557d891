"""Stage `export`: hands finished pictures to the run's writer. No torch."""

from typing import TYPE_CHECKING

from framework.registry import register_stage
from framework.spec import ComponentUse
from framework.values import Frames

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value


@register_stage("export")
class Export:
    """Writes nothing for later stages; without a writer there is nobody to hand to."""

    inputs = ("frames",)
    optional_inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    component_uses: tuple[ComponentUse, ...] = ()

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        frames = ctx.values["frames"]
        assert isinstance(frames, Frames)
        if ctx.writer is not None:
            ctx.writer.save(frames, ctx.request_index)
        return {}
