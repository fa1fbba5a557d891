"""What the framework costs over a plain diffusers script, from RunSpec to closed mp4, on the embedded model.

    python -m bench.overhead [--pairs 7] [--json]

Both sides load the weights, make the same clip and close the same mp4 in this process, in turn (A B A B ...), after one
uncounted pair; modules are imported beforehand, contact sheet and record are off. The figure is the median of the pair
ratios. Compose and validate are reported apart. Run it on an idle machine.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from framework.compose import compose
from framework.graph import build_graph
from framework.outputs.hashing import config_sha256
from framework.outputs.writer import OutputWriter
from framework.paths import EMBEDDED_MODELS
from framework.runtime.events import EventBus
from framework.runtime.run import execute
from framework.spec import RunSpec

OVERRIDES = ["pipeline=digits", "prompt=a seven moving right", "seed=0", "output.sheet=false", "device=cpu"]


def ours(spec: RunSpec, folder: Path) -> None:
    bus = EventBus()
    writer = OutputWriter(spec.output, folder, bus, spec.requests, config_sha256(spec.config))
    execute(spec, build_graph(spec.pipeline), bus, writer)


def plain(folder: Path) -> None:
    """What a user would write with diffusers and PyAV."""
    import av
    from diffusers import WanPipeline

    pipe = WanPipeline.from_pretrained(EMBEDDED_MODELS / "digits", dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    frames = pipe(
        prompt="a seven moving right",
        negative_prompt="",
        height=32,
        width=32,
        num_frames=9,
        num_inference_steps=16,
        guidance_scale=3.0,
        max_sequence_length=16,
        generator=torch.Generator().manual_seed(0),
        output_type="np",
    ).frames[0]
    with av.open(str(folder / "plain.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=6)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for frame in (frames * 255).round().astype(np.uint8):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure(pairs: int) -> dict[str, Any]:
    """Return medians in seconds and the median ratio ours / plain."""
    torch.set_num_threads(1)
    compose(OVERRIDES)
    composing = statistics.median(seconds(lambda: compose(OVERRIDES)) for _ in range(5))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for index in range(pairs + 1):
            folder = Path(scratch) / str(index)
            folder.mkdir()
            spec = compose(OVERRIDES)
            rows.append((seconds(lambda s=spec, f=folder: ours(s, f)), seconds(lambda f=folder: plain(f))))  # type: ignore[misc]
    counted = rows[1:]
    return {
        "pairs": pairs,
        "ours_s": round(statistics.median(a for a, _ in counted), 3),
        "plain_s": round(statistics.median(b for _, b in counted), 3),
        "ratio": round(statistics.median(a / b for a, b in counted), 3),
        "compose_s": round(composing, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.pairs)
    print(json.dumps(result) if options.json else "\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
