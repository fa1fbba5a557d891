"""The check for the day a GPU is at hand: equality, bandwidth, step times beside peers, plans, streams, compilations.

    python -m bench.gpu [--device cuda|sim] [--quick] [--parts abcdef] [--seconds 320] [--out FOLDER] [--json]

Needs no network, no Hydra and no checkpoint: weights are random, layer shapes real (`bench/gpu_models.py`), depth cut.
(a) tiny pipelines in every placement are bit-equal under deterministic kernels; (b) copies, pinned and pageable, and
the share of the pinned rate that a streamed step reaches; (c) seconds a step and peaks of ours and of what users would
pick instead; (d) what the plan said after `measure` beside what came; (e) sanitizers on a short run; (f) compilations.
What has not begun after `--seconds` is left out by name. `--quick` takes tiny shapes; on `sim` it rehearses the script.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts

import torch

from bench import gpu_parts, tables
from bench.gpu_models import LARGE, build_large
from bench.gpu_run import OURS, STEPS, Device, run_ours, run_peer, tried
from bench.peers_models import Model, build
from bench.peers_tiny import MODELS
from bench.results import Result, load_now, machine, write
from framework.calibration.measure import measure
from framework.calibration.measured import Measured, laid_over
from framework.loading.load import quiet_libraries
from framework.loading.weights import size_bytes
from framework.planning.machine import resolve_hardware
from framework.platforms import make_platform

PARTS = "abcdef"
PEERS = (
    "diffusers model offload",
    "diffusers group offload, blocks, stream, record_stream",
    "diffusers group offload, leaves, stream, record_stream",
    "diffusers sequential offload",
)
COMMAND = "bash bench/gpu_check.sh WHEELS OUT"
LAST_S = 25  # of the time: no further setting begins
QUICK = replace(MODELS["flux1_dev"], name="tiny_flux", deepen=lambda pipeline: {})
QUICK_OURS = ("ours, resident", "ours, layerwise", "ours, auto")


@dataclass
class Check:
    """One run of the script: the device, what was measured of it, and the answers so far."""

    device: Device
    quick: bool
    ends: float
    folder: Path
    measured: Measured | None = None
    found: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def has_time(self, what: str) -> bool:
        if time.monotonic() < self.ends - LAST_S:
            return True
        self.left_out.append(what)
        return False

    def calibrate(self) -> None:
        """Measure the device; from then on plans go by it."""
        self.measured = measure(self.device.platform)
        profile = laid_over(self.device.profile, self.measured, "measured by this check")
        if not self.device.simulated:  # which would be another machine
            self.device.profile = profile
        self.found["b"] = {name: value for name, value in asdict(self.measured).items() if name != "seconds"}
        rate = self.measured.h2d_pinned_gbps or self.measured.h2d_pageable_gbps or 0.0
        self.found["b"]["streamed"] = gpu_parts.streamed_share(self.device, rate, self.quick)

    def compare(self) -> None:
        """Ours and peers on each model, most telling settings first."""
        models = {QUICK.name: QUICK} if self.quick else LARGE
        self.found["c"] = {}
        for name, model in models.items():
            if self.has_time(name):
                self.found["c"][name] = self._model(model)

    def _model(self, model: Model) -> dict[str, Any]:
        from diffusers import DiffusionPipeline

        folder = self.folder / model.name
        pipeline = build(model) if self.quick else build_large(model)
        denoiser_bytes = size_bytes(getattr(pipeline, model.denoiser))
        pipeline.save_pretrained(folder)
        del pipeline
        dtype = torch.float32 if self.quick else torch.bfloat16

        def load() -> Any:
            loaded = DiffusionPipeline.from_pretrained(folder, dtype=dtype)
            loaded.set_progress_bar_config(disable=True)
            return loaded

        rows, expected, budget = [], None, None
        for setting in (*QUICK_OURS, *PEERS[1:2]) if self.quick else (*OURS, *PEERS):
            if not self.has_time(f"{model.name}, {setting}"):
                continue
            own = budget if setting == "ours, auto" else None
            if setting in OURS:
                row, made = tried(
                    lambda s=setting, b=own: run_ours(self.device, model, s, folder, OURS[s], b),  # type: ignore[misc]
                    setting,
                )
            else:
                row, made = tried(lambda s=setting: run_peer(self.device, model, s, load), setting)  # type: ignore[misc]
            if made is not None and expected is None:
                expected = made
                budget = row["device_peak_bytes"] - denoiser_bytes // 2  # for auto: half the denoiser too little
            row["same_picture"] = None if made is None else torch.equal(made.reshape(expected.shape), expected)
            row["budget_bytes"] = own
            rows.append(self._bounded(row, rows, model, denoiser_bytes))
        return {"denoiser_bytes": denoiser_bytes, "passes": model.passes, "rows": rows}

    def _bounded(self, row: dict[str, Any], rows: Sequence[dict[str, Any]], model: Model, size: int) -> dict[str, Any]:
        """Add the larger of the resident step and the copies of a step, and the ratio to it."""
        resident = next((one["step_s"] for one in [*rows, row] if one["setting"] == "ours, resident"), None)
        if "step_s" not in row or resident is None or self.measured is None:
            return row
        moved = size * model.passes if row["setting"] in PEERS[1:] else 0.0
        if row["setting"] in OURS:  # the first call brings everything, every other what is streamed
            total = row.get("moved_bytes", {}).get(model.denoiser, {}).get("h2d", 0)
            moved = max(0, total - size) / (STEPS * model.passes - 1) * model.passes
        copy_s = moved / ((self.measured.h2d_pinned_gbps or 1e9) * 1e9)
        bound = max(resident, copy_s)
        return {**row, "compute_s": resident, "copy_s": copy_s, "over_bound": row["step_s"] / bound}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Answer the parts that were asked for, (c) last, which takes what time is left."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FRAMEWORK_CACHE"] = folder
        check = Check(make_device(options.device), options.quick, began + options.seconds, Path(folder))
        tiny = [QUICK] if options.quick else list(MODELS.values())
        actions = {
            "b": check.calibrate,
            "a": lambda: check.found.update(a=gpu_parts.equality(check.device, check.folder, tiny)),
            "f": lambda: check.found.update(f=gpu_parts.compilations(check.device)),
            "e": lambda: check.found.update(e=gpu_parts.sanitizers(check.device)),
            "c": check.compare,
        }
        for part, action in actions.items():
            if (part in options.parts or (part == "c" and "d" in options.parts)) and check.has_time(f"part {part}"):
                action()
    found = dict(sorted(check.found.items()))
    if "d" in options.parts:
        found["d"] = _plans(found.get("c", {}))
    about = {"device": str(check.device.platform.device), "profile": check.device.profile.name, "quick": options.quick}
    about["device_name"] = _name(check.device)
    return {**about, "simulated": check.device.simulated, "left_out": check.left_out, "parts": found}


def make_device(kind: str) -> Device:
    """Return the device; a simulated one is an RTX 4090 with arithmetic slow enough for tiny shapes to take time."""
    if kind == "sim":
        from framework.platforms.hardware import load_hardware
        from framework.platforms.sim import World, install, start

        install()
        profile = replace(load_hardware("rtx_4090"), bf16_tflops=1.0, fp32_tflops=1.0, launch_us=0.01)
        start(World(profile))
        return Device(make_platform("sim"), profile)
    platform = make_platform(kind)
    return Device(platform, resolve_hardware(None, str(platform.device)).profile)


def _name(device: Device) -> str:
    return "sim" if device.simulated else torch.cuda.get_device_name(device.platform.device)


def _plans(compared: dict[str, Any]) -> dict[str, Any]:
    """Return by model what the plan of `ours, auto` said for each stage, and what came."""
    return {
        name: row["stages"]
        for name, case in compared.items()
        for row in case["rows"]
        if row["setting"] == "ours, auto" and row.get("stages")
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the answers; the exit code is 1 where a picture differs or a sanitizer found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "sim"), default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--seconds", type=float, default=320.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="write gpu.json and gpu.md here, unless the device is simulated")
    options = parser.parse_args(argv)
    quiet_libraries()
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    began, load = time.perf_counter(), load_now()
    found = run(options)
    if options.out is not None and not found["simulated"]:
        result = Result("gpu", COMMAND, found, round(time.perf_counter() - began, 1), round(load, 2), machine())
        write(result, options.out)
    print(json.dumps(found) if options.json else "\n".join(tables.gpu(found)))
    wrong = found["parts"].get("a", {}).get("different", [])
    bad = [name for name, one in found["parts"].get("e", {}).items() if one["rc"] not in (0, None)]
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    sys.exit(main())
