"""Stage `trouble`, before all others: ends a job as the first word of its prompt says. No torch at import."""

import os
import signal
import time
from typing import Any

from framework.registry import register_stage
from framework.spec import ComponentUse


@register_stage("trouble")
class Trouble:
    """Reads and writes nothing."""

    inputs: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    component_uses: tuple[ComponentUse, ...] = ()

    def run(self, ctx: Any) -> dict[str, Any]:
        how = ctx.request.prompt.partition(" ")[0]
        if how == "raise":
            raise ValueError("this one raises")
        if how == "exit":
            os._exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "memory":
            import torch

            raise torch.OutOfMemoryError(f"{ctx.device}: out of memory")
        while how == "hang":
            ctx.check()
            time.sleep(0.05)
        return {}
