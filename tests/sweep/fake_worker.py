"""A worker without torch: it keeps a true record of a run that it only pretends, and does what the prompt says.

The prompts `raise`, `exit`, `kill`, `hang`, `stuck` and `memory` end a job as their names say, `pause` takes a while;
any other is done at once.
"""

import os
import signal
import sys
import time
from pathlib import Path

from framework.errors import PlanError, StageError
from framework.outputs.hashing import file_sha256
from framework.runtime import events
from framework.runtime.interrupts import interruptible
from framework.spec import RunSpec
from framework.sweep import worker


class FakeServer(worker.Server):
    """Writes what the run would see of its process into `seen.txt`, its only output."""

    def make(self, spec: RunSpec, folder: Path, bus: events.EventBus, earlier: Path | None = None) -> None:
        (request,) = spec.requests
        bus.emit(events.RunStarted(spec.pipeline.name, 1, spec.device))
        bus.emit(events.RequestStarted(0, 1, request.prompt, request.seeds or (0,)))
        print(f"printed by {folder.name}")
        with interruptible() as interrupts:
            misbehave(request.prompt.partition(" ")[0], interrupts.check)
        output = folder / "seen.txt"
        shown = {name: os.environ.get(name) for name in ("FRAMEWORK_SIM_DEVICES", "CUDA_VISIBLE_DEVICES")}
        bound = spec.budget.device and spec.budget.device.size_bytes
        output.write_text(f"{spec.device} {shown} seeds {request.seeds} bytes {bound} pid {os.getpid()}\n")
        bus.emit(events.OutputSaved(0, str(output), file_sha256(output), None))
        bus.emit(events.RequestFinished(0, 0.01))
        bus.emit(events.RunFinished("done", 0.01))


def misbehave(how: str, check) -> None:  # type: ignore[no-untyped-def]
    if how == "raise":
        raise StageError("stage 'denoise' failed: this one raises")
    if how == "memory":
        raise PlanError("the weights that stay on the device take 9 MiB, and it has 8 MiB")
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stuck":  # no check and no signal reaches it
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if how == "pause":
        time.sleep(1.0)
    while how == "hang":
        check()
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(worker.main(FakeServer))
