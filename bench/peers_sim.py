"""Ours beside what users would pick instead, on simulated machines: time, memory, and bytes over the bus.

    python -m bench.peers_sim [--models NAME ...] [--hardware NAME ...] [--processes 2] [--quick] [--json]

Tiny pipelines in the structure of Wan 14B, FLUX.1 dev, Qwen-Image and SDXL, on four machines scaled so that TFLOP per
streamed GB, shares of memory and shares of launches are those of the real ones at their default requests. Every time is
virtual, so processes side by side change none, and for as many steps as a real request has. Each setting has to make
the same picture as diffusers with everything resident. A goal that is not met is a result: it is printed, and the exit
code stays 0.
"""

import argparse
import copy
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bench import tables
from bench.peers_goals import check
from bench.peers_models import Model, build, save, scaled, with_memory
from bench.peers_run import OURS, Row, run_ours, run_peer
from bench.peers_settings import PEERS, STEPS, call
from bench.peers_tiny import MODELS
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
    """A model built once: its pipeline on the host, its folder, and what one call of its denoiser takes."""

    model: Model
    pipeline: Any
    folder: Path
    denoiser_bytes: int
    tflop: float
    activation_bytes: int


def prepare(model: Model, folder: Path) -> Subject:
    """Build and save the pipeline, and look at a call of its denoiser."""
    pipeline = build(model)
    denoiser = getattr(pipeline, model.denoiser)
    taken = _look(model, copy.deepcopy(pipeline))
    return Subject(model, pipeline, save(model, folder), size_bytes(denoiser), *taken)


def _look(model: Model, pipeline: Any) -> tuple[float, int]:
    """Return TFLOP and activation bytes of a call, from a machine of 1 TFLOP/s with nothing else to wait for."""
    plain: dict[str, Any] = {
        "memory_gbps": 1e9,
        "launch_us": 0.0,
        "bf16_tflops": 1.0,
        "fp32_tflops": 1.0,
        "efficiency": Efficiency(),
    }
    world = start(World(replace(load_hardware("h100"), **plain)))
    spent, inside, highest = [0.0], [0], [0]
    ledger, denoiser = world.devices[0].ledger, getattr(pipeline, model.denoiser)

    def begin(*_: object) -> None:
        ledger.reset_peak()
        inside[0] = ledger.live_bytes

    def end(*_: object) -> None:
        highest[0] = max(highest[0], ledger.peak_bytes - inside[0])
        inside[0] = 0

    denoiser.register_forward_pre_hook(begin)
    denoiser.register_forward_hook(end)
    world.on_kernel = lambda began, ended: spent.append(ended - began if inside[0] else 0.0)
    pipeline.to("sim")
    with torch.no_grad():
        call(pipeline, model, "a cat")
    return sum(spent) / (STEPS * model.passes), highest[0]


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
        "activations": subject.activation_bytes / subject.denoiser_bytes,
        "real_activations": model.activations,
        "ample_resident_s": bound.seconds,
        "rows": [asdict(row) for row in rows],
        "within": within,
    }
    return {**found, "goals": check(found)}


def _within(subject: Subject, profile: HardwareProfile, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each peer: the fastest of ours that stays inside the peer's own peak, planned for it where none does yet."""
    ours = [row for row in rows if row.setting in OURS and row.seconds is not None]

    @cache  # peers that differ in streams alone have one peak
    def planned(size_bytes: int) -> Row:
        return run_ours(subject.model, with_memory(profile, size_bytes), "ours, auto", subject.folder)[0]

    found = []
    for peer in rows:
        if peer.setting in OURS or peer.seconds is None or peer.peak_bytes is None:
            continue
        fitting = [row for row in ours if (row.peak_bytes or 0) <= peer.peak_bytes]
        best = min(fitting, key=lambda row: row.seconds or 0.0, default=None)
        if best is None or (best.seconds or 0.0) > peer.seconds:
            own = planned(peer.peak_bytes)
            best = own if own.seconds is not None else best
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


def work(name: str, hardware: str, quick: bool, folder: str) -> dict[str, Any]:
    """Measure one case in a process of its own."""
    ours, peers = (QUICK_OURS, QUICK_PEERS) if quick else (tuple(OURS), tuple(PEERS))
    torch.set_num_threads(1)
    quiet_libraries()
    install()
    os.environ["FRAMEWORK_CACHE"] = folder  # the work of these models is of no use to anybody else
    began = time.perf_counter()
    found = measure(_known(name, Path(folder) / f"{name}-{os.getpid()}"), hardware, ours, peers)
    figures = "; ".join(goal["figure"] for goal in found["goals"][:2])
    print(f"{name} on {hardware}: {time.perf_counter() - began:.0f} s; {figures}", file=sys.stderr, flush=True)
    return found


@cache
def _known(name: str, folder: Path) -> Subject:
    return prepare(MODELS[name], folder)


def main(argv: Sequence[str] | None = None) -> None:
    """Print JSON, or the table of each model and machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--hardware", nargs="+", default=list(HARDWARE))
    parser.add_argument("--processes", type=int, default=2, help="cases that are worked on at the same time")
    parser.add_argument("--quick", action="store_true", help="one model, one machine, four settings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    cases = [("flux1_dev", "rtx_4090")] if options.quick else list(product(options.models, options.hardware))
    alone = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(min(options.processes, len(cases)), alone) as pool,
    ):
        running = [pool.submit(work, name, hardware, options.quick, folder) for name, hardware in cases]
        found = [one.result() for one in running]
    print(json.dumps(found) if options.json else "\n".join(tables.peers_sim(found)))


if __name__ == "__main__":
    main()
