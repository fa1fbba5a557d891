"""How well copies hide behind compute: the real streamer in virtual time against the recurrence of a ring.

    python -m bench.overlap_sim [--passes 4] [--tier pinned|pageable] [--quick] [--json]

Stacks with the layer counts, bytes and arithmetic of Wan 2.2 14B (81 frames at 480p), FLUX.1 and Qwen-Image (1024 px)
and the SDXL UNet, 1/SCALE in size, on the shipped profiles, whose rates are scaled so that every layer's compute and
copy keep their real ratio. The recurrence: start(i) = max(done(i-1), ready(i)), copy(k) = max(copy(k-1), slot free).

Each figure must be at most 1.03 x the recurrence, never below max(compute, copies), and within 1 % of everything
resident where every layer's compute covers the next one's copy; else the exit code is 1. The head of the stream is
there when the clock starts, as the engine fetches it ahead of a use. `--tier pageable`: nothing is pinned, all passes
through the staging buffers; the host's own copy into them takes no virtual time.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from framework.memory.courier import STAGING_BYTES, Courier
from framework.memory.host_budget import HostMemory
from framework.memory.host_store import HostStore
from framework.memory.layers import find_stacks
from framework.memory.layerwise import attach_streamer
from framework.memory.pin_ledger import PinLedger
from framework.memory.policy import Knobs
from framework.memory.resources import Resources
from framework.platforms import make_platform
from framework.platforms.hardware import HardwareProfile, load_hardware
from framework.platforms.sim.backend import install
from framework.platforms.sim.world import World, start

PROFILES = ("rtx_3060_12gb", "rtx_4090", "h100")
DEPTHS = (1, 2, 4)  # layers loaded ahead
QUICK = (("unet", "rtx_4090", 1), ("flux", "rtx_3060_12gb", 2))
SCALE = 20_000  # real bytes to a byte here
WIDTH = 64
KEYS = ("model", "hardware", "prefetch")
ROWS = 8  # of the product that stands for 1 TFLOP per GB
AT_MOST, COVERED, ROUNDING = 1.03, 1.01, 0.999
AT_MOST_STAGED = 1.2  # only one layer waits in the staging buffers, which costs where layers differ much in size


@dataclass(frozen=True, slots=True)
class Layer:
    """A real layer: its weights in GB and its arithmetic in TFLOP for one call."""

    gb: float
    tflop: float


def shapes() -> dict[str, list[list[Layer]]]:
    """Block lists by model; bfloat16 bytes, and 2 FLOP for each weight and token, plus attention."""
    wan = [Layer(0.70, 45.0)] * 40  # 32,760 tokens, half of it attention
    flux = [[Layer(0.68, 3.3)] * 19, [Layer(0.28, 1.4)] * 38]  # 4,608 tokens
    qwen = [Layer(0.68, 3.2)] * 60  # 4,300 tokens
    down = [Layer(0.02, 0.9), Layer(0.22, 1.4), Layer(1.48, 2.1)]  # batch of 2
    up = [Layer(2.24, 3.2), Layer(0.34, 2.2), Layer(0.04, 1.3)]
    return {"wan": [wan], "flux": flux, "qwen": [qwen], "unet": [down, [Layer(0.84, 0.9)], up]}


class Block(nn.Module):
    """One product whose weight has the layer's bytes and whose rows make up its arithmetic."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        columns = max(1, round(layer.gb * 1e9 / SCALE / WIDTH / 2))
        self.weight = nn.Parameter(torch.zeros(columns, WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.rows = max(1, round(ROWS * layer.tflop / layer.gb))

    def forward(self, x: Tensor) -> Tensor:
        F.linear(x[: self.rows], self.weight)
        return x


class Model(nn.Module):
    def __init__(self, stacks: Sequence[Sequence[Layer]]) -> None:
        super().__init__()
        self.stacks = nn.ModuleList(nn.ModuleList(Block(layer) for layer in stack) for stack in stacks)

    @property
    def blocks(self) -> list[Block]:
        return [block for stack in self.stacks for block in stack]  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def scaled(profile: HardwareProfile) -> HardwareProfile:
    """The machine in small: copies and launches keep their speed per real byte, arithmetic per real TFLOP."""
    tflops = profile.bf16_tflops * ROWS / 1000  # ROWS rows make ROWS FLOP of each byte, which stand for 1000
    return dataclasses.replace(
        profile, bf16_tflops=tflops, memory_gbps=1e9, launch_us=profile.launch_us / SCALE, overlap=1.0
    )


def run(
    stacks: Sequence[Sequence[Layer]],
    profile: HardwareProfile,
    depth: int | None,
    passes: int,
    pinned: bool = True,
) -> float:
    """Virtual seconds of some passes, everything resident where `depth` is None."""
    machine = start(World(profile))
    platform = make_platform("sim")
    plenty = HostMemory(2**40, 2**40)
    ledger = PinLedger(plenty, None if pinned else 0)
    shared = Resources(Courier(platform, STAGING_BYTES // SCALE), HostStore(platform, ledger))
    model = Model(stacks)
    found = find_stacks("model", model, [f"stacks.{i}" for i in range(len(stacks))])
    counts = tuple(len(stack) for stack in stacks)
    none = (0,) * len(counts)
    knobs = Knobs(none, counts) if depth is None else Knobs((depth,) * len(counts), none)
    streamer = attach_streamer("model", model, knobs, shared, found)
    x = torch.zeros(max(block.rows for block in model.blocks), WIDTH, dtype=torch.bfloat16, device="sim")
    for _ in range(2):  # the first use teaches the order
        streamer.start()
        streamer.wait()
        machine.synchronize()
        begun = machine.host_s
        for _ in range(passes):
            model(x)
        platform.current_stream().synchronize()
        seconds = machine.host_s - begun
        streamer.finish()
    streamer.detach()
    return seconds


def recurrence(compute: Sequence[float], copying: Sequence[float], slots: int) -> float:
    """Seconds of all calls in turn, when the first `slots` copies were done before."""
    done: list[float] = []
    last_copy = 0.0
    for i, (compute_s, copy_s) in enumerate(zip(compute, copying, strict=True)):
        ready = 0.0
        if i >= slots:
            ready = last_copy = max(last_copy, done[i - slots]) + copy_s
        done.append(max(done[-1] if done else 0.0, ready) + compute_s)
    return done[-1]


def measure(name: str, hardware: str, depth: int, passes: int, pinned: bool = True) -> dict[str, float | str | int]:
    """Return one row: virtual seconds of the streamer, the recurrence, everything resident and both sums."""
    stacks = shapes()[name]
    profile = scaled(load_hardware(hardware))
    blocks = Model(stacks).blocks
    rate = profile.bf16_tflops * 1e12 * profile.efficiency.matmul
    compute = [2.0 * block.rows * block.weight.numel() / rate for block in blocks] * passes
    padded = [-(-block.weight.nbytes // 256) * 256 for block in blocks]  # a layer's bytes are a multiple of 256
    copying = [size / (profile.h2d_pinned_gbps * 1e9) for size in padded] * passes
    slots = min(depth + 1, len(blocks))
    covered = all(copy_s <= compute_s for compute_s, copy_s in zip(compute, [*copying[1:], 0.0], strict=True))
    return {
        "model": name,
        "hardware": hardware,
        "prefetch": depth,
        "streamed_s": run(stacks, profile, depth, passes, pinned),
        "recurrence_s": recurrence(compute, copying, slots),
        "resident_s": run(stacks, profile, None, passes),
        "compute_s": sum(compute),
        "copy_s": sum(copying[slots:]),
        "covered": covered,
        "pinned": pinned,
    }


def faults(row: dict[str, float | str | int]) -> list[str]:
    """What is wrong with a row, in words."""
    streamed, bound = float(row["streamed_s"]), max(float(row["compute_s"]), float(row["copy_s"]))
    found = []
    most = AT_MOST if row["pinned"] else AT_MOST_STAGED
    if streamed > most * float(row["recurrence_s"]):
        found.append(f"more than {most} x the recurrence")
    if streamed < ROUNDING * bound:
        found.append("faster than its compute and its copies")
    if row["pinned"] and row["covered"] and streamed > COVERED * float(row["resident_s"]):
        found.append(f"more than {COVERED} x resident though compute covers the copies")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--tier", choices=("pinned", "pageable"), default="pinned")
    parser.add_argument("--quick", action="store_true", help="two rows only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    install()
    with torch.no_grad():
        keys = (
            list(QUICK)
            if options.quick
            else [(name, hardware, depth) for name in shapes() for hardware in PROFILES for depth in DEPTHS]
        )
        rows = [measure(*key, options.passes, options.tier == "pinned") for key in keys]
    if options.json:
        print(json.dumps(rows))
    else:
        print(f"{'model':6s}{'hardware':16s}{'prefetch':>8s}{'x recurrence':>14s}{'x resident':>12s}{'x bound':>9s}")
        for row in rows:
            print(describe(row))
    wrong = [f"{' '.join(str(row[key]) for key in KEYS)}: {text}" for row in rows for text in faults(row)]
    if wrong:
        raise SystemExit("\n".join(wrong))


def describe(row: dict[str, float | str | int]) -> str:
    streamed = float(row["streamed_s"])
    bound = max(float(row["compute_s"]), float(row["copy_s"]))
    ratios = (streamed / float(row["recurrence_s"]), streamed / float(row["resident_s"]), streamed / bound)
    text = f"{row['model']:6s}{row['hardware']:16s}{row['prefetch']:8d}"
    text += "".join(f"{ratio:{width}.3f}" for ratio, width in zip(ratios, (14, 12, 9), strict=True))
    return text + ("  compute covers the copies" if row["covered"] else "")


if __name__ == "__main__":
    main()
