"""Ours beside what users would pick instead, on simulated machines: time, memory, and bytes over the bus.

    python -m bench.peers_sim [--models NAME ...] [--hardware NAME ...] [--quick] [--json]

Tiny pipelines in the structure of Wan 14B (81 frames at 480p), FLUX.1 dev, Qwen-Image (1024 px) and SDXL, on four
machines scaled so that TFLOP per streamed GB, shares of memory and shares of launches are the real ones. Every time is
virtual and for as many steps as a real request has. Each setting has to make the same picture as diffusers with
everything resident. A goal that is not met is a result: it is printed, and the exit code stays 0.
"""

import argparse
import copy
import gc
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench import tables
from bench.peers_goals import check
from bench.peers_models import MODELS, Model, build, save, scaled, with_memory
from bench.peers_run import OURS, Row, run_ours, run_peer
from bench.peers_settings import PEERS, STEPS, call
from framework.loading.load import quiet_libraries
from framework.loading.weights import size_bytes
from framework.platforms.hardware import GIB, Efficiency, HardwareProfile, load_hardware
from framework.platforms.sim import World, install, start

HARDWARE = ("rtx_3060_12gb", "rtx_4090", "a100_40gb", "h100")
QUICK_PEERS = ("diffusers model offload", "diffusers group offload, blocks, stream, record_stream")
QUICK_OURS = ("ours, layerwise", "ours, auto")
AMPLE_BYTES = 64 * GIB


@dataclass(frozen=True)
class Subject:
    """A model built once: its pipeline on the host, its folder, and the arithmetic of one call of its denoiser."""

    model: Model
    pipeline: Any
    folder: Path
    denoiser_bytes: int
    tflop: float


def prepare(model: Model, folder: Path) -> Subject:
    """Build and save the pipeline, and count the arithmetic of its denoiser."""
    pipeline = build(model)
    denoiser = getattr(pipeline, model.denoiser)
    return Subject(model, pipeline, save(model, folder), size_bytes(denoiser), _tflop(model, copy.deepcopy(pipeline)))


def _tflop(model: Model, pipeline: Any) -> float:
    """Run on a machine of 1 TFLOP/s with nothing else to wait for: seconds are TFLOP."""
    plain: dict[str, Any] = {
        "memory_gbps": 1e9,
        "launch_us": 0.0,
        "bf16_tflops": 1.0,
        "fp32_tflops": 1.0,
        "efficiency": Efficiency(),
    }
    world = start(World(replace(load_hardware("h100"), **plain)))
    spent, inside = [0.0], [False]
    denoiser = getattr(pipeline, model.denoiser)
    denoiser.register_forward_pre_hook(lambda *_: inside.__setitem__(0, True))
    denoiser.register_forward_hook(lambda *_: inside.__setitem__(0, False))
    world.on_kernel = lambda began, ended: spent.append(ended - began if inside[0] else 0.0)
    pipeline.to("sim")
    with torch.no_grad():
        call(pipeline, model, "a cat")
    return sum(spent) / (STEPS * model.passes)


def measure(subject: Subject, hardware: str, ours: Sequence[str], peers: Sequence[str]) -> dict[str, Any]:
    """Return all rows of one model on one machine, and what they say of the goals."""
    model = subject.model
    profile = scaled(model, hardware, subject.denoiser_bytes, subject.tflop)
    bound, expected = run_peer(
        model, profile, "diffusers resident", copy.deepcopy(subject.pipeline), capacity_bytes=AMPLE_BYTES
    )
    assert expected is not None, "memory was ample"
    rows = []
    for setting in (*ours, *peers):
        if setting in OURS:
            row, made = run_ours(model, profile, setting, subject.folder)
        else:
            row, made = run_peer(model, profile, setting, copy.deepcopy(subject.pipeline))
        same = None if made is None else torch.equal(made.reshape(expected.shape), expected)
        rows.append(replace(row, same_picture=same))
        gc.collect()  # hooks are cycles, and hold the world that they ran in
    within = _within(subject, profile, rows)
    found = {
        "model": model.name,
        "hardware": hardware,
        "image": model.image,
        "capacity_bytes": profile.capacity_bytes,
        "denoiser_bytes": subject.denoiser_bytes,
        "steps": model.steps,
        "ample_resident_s": bound.seconds,
        "rows": [asdict(row) for row in rows],
        "within": within,
    }
    return {**found, "goals": check(found)}


def _within(subject: Subject, profile: HardwareProfile, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each peer: the fastest of ours that stays inside the peer's own peak, planned for it where none does yet."""
    ours = [row for row in rows if row.setting in OURS and row.seconds is not None]
    found = []
    for peer in rows:
        if peer.setting in OURS or peer.seconds is None or peer.peak_bytes is None:
            continue
        fitting = [row for row in ours if (row.peak_bytes or 0) <= peer.peak_bytes]
        best = min(fitting, key=lambda row: row.seconds or 0.0, default=None)
        if best is None or (best.seconds or 0.0) > peer.seconds:
            smaller = with_memory(profile, peer.peak_bytes)
            planned, _ = run_ours(subject.model, smaller, "ours, auto", subject.folder)
            best = planned if planned.seconds is not None else best
        found.append(
            {
                "peer": peer.setting,
                "peak_bytes": peer.peak_bytes,
                "peer_s": peer.seconds,
                "ours": best.setting if best else None,
                "ours_s": best.seconds if best else None,
            }
        )
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Print JSON, or the table of each model and machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--hardware", nargs="+", default=list(HARDWARE))
    parser.add_argument("--quick", action="store_true", help="one model, one machine, four settings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if options.quick:
        options.models, options.hardware = ["flux1_dev"], ["rtx_4090"]
    ours, peers = (QUICK_OURS, QUICK_PEERS) if options.quick else (tuple(OURS), tuple(PEERS))
    torch.set_num_threads(1)
    quiet_libraries()
    install()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FRAMEWORK_CACHE"] = folder  # the work of these models is of no use to anybody else
        for name in options.models:
            subject = prepare(MODELS[name], Path(folder) / name)
            found += [measure(subject, hardware, ours, peers) for hardware in options.hardware]
    print(json.dumps(found) if options.json else "\n".join(tables.peers_sim(found)))


if __name__ == "__main__":
    main()
