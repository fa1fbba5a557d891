"""What loading costs: peak anonymous host memory and seconds, ours beside diffusers' `from_pretrained`.

    python -m bench.load_memory [--layers 7] [--folder FOLDER] [--only VARIANT ...] [--json]

Makes a checkpoint with the shapes of a Wan 2.1 1.3B transformer (bfloat16, random, about 0.1 GB a layer) and loads it
in a process of its own for each variant. Pages of mapped files are not anonymous: the kernel can drop them. Ours runs
on `sim`, whose pinned and device memory are host memory and count. The figure is the peak over the bytes that the
tier has to hold; it must be at most 1.1 where there are any, else the exit code is 1. Needs Linux.
"""

import argparse
import json
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 1.1
POLL_S = 0.002
SLACK_BYTES = 32 * 1024**2  # the interpreter's own growth: code, configs, modules

CONFIG = {
    "num_attention_heads": 12,
    "attention_head_dim": 128,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": 4096,
    "freq_dim": 256,
    "ffn_dim": 8960,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
}


def make_checkpoint(folder: Path, num_layers: int) -> None:
    """Write `folder/transformer` as diffusers would, in two shards."""
    import torch
    from diffusers import WanTransformer3DModel
    from safetensors.torch import save_file

    part = folder / "transformer"
    part.mkdir(parents=True)
    with torch.device("meta"):
        model = WanTransformer3DModel(**CONFIG, num_layers=num_layers)
    model.save_config(part)
    generator = torch.Generator().manual_seed(0)
    names = list(model.state_dict())
    shards = names[: len(names) // 2], names[len(names) // 2 :]
    where: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"diffusion_pytorch_model-{number:05d}-of-{len(shards):05d}.safetensors"
        shapes = {name: model.state_dict()[name].shape for name in shard}
        made = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
        for tensor in made.values():
            tensor.uniform_(-0.02, 0.02, generator=generator)
        save_file(made, part / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (part / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))


# In the child


def plain(dtype: str | None) -> Callable[[Path], int]:
    """diffusers' own loading; nothing of ours is counted as held."""

    def load(folder: Path) -> int:
        import torch
        from diffusers import WanTransformer3DModel

        options = {"dtype": getattr(torch, dtype)} if dtype else {}
        keep.append(WanTransformer3DModel.from_pretrained(folder / "transformer", **options))
        return 0

    return load


def ours(mode: str, tier: str = "pinned", dtype: str | None = None) -> Callable[[Path], int]:
    """Our loading for one mode and tier; returns the bytes that were pinned, copied or put on the device."""

    def load(folder: Path) -> int:
        from framework.loading.components import find_part, load_part
        from framework.loading.index import ClassName, ModelIndex
        from framework.loading.weights import size_bytes
        from framework.memory.host_budget import HostMemory
        from framework.memory.malloc import returned_when_freed
        from framework.memory.resources import make_resources
        from framework.platforms import make_platform
        from framework.runtime.placed import Placed
        from framework.spec import ComponentSpec, ModelSpec, Placement

        name = ClassName("diffusers", "WanTransformer3DModel")
        index = ModelIndex(folder, ClassName("diffusers", "WanPipeline"), {"transformer": name}, {})
        model = ModelSpec(source=str(folder), dtype=dtype)
        platform = make_platform("sim")
        resources = make_resources(platform, pinned_budget_bytes=None if tier == "pinned" else 0)
        if tier == "mapped":
            object.__setattr__(resources.store, "memory", lambda: HostMemory(0, 0))
        placement = Placement(component="transformer", group="dit", mode=mode)
        placed = Placed({"transformer": placement}, resources)
        part = find_part(index, model, ComponentSpec(name="transformer"))
        with returned_when_freed():
            module = load_part(part, model)
        total = size_bytes(module)
        placed.strategy("transformer", module)
        keep.append((placed, module))
        figures = platform.memory()
        return figures.allocated_bytes + figures.pinned_bytes + (total if tier == "pageable" else 0)

    return load


keep: list[Any] = []  # what was loaded, until the child ends

VARIANTS: dict[str, Callable[[Path], int]] = {
    "from_pretrained": plain(None),
    "from_pretrained, dtype": plain("bfloat16"),
    "resident": ours("resident"),
    "component-offload, pinned": ours("component-offload"),
    "layerwise-offload, pinned": ours("layerwise-offload"),
    "layerwise-offload, cast": ours("layerwise-offload", dtype="float16"),
    "layerwise-offload, pageable": ours("layerwise-offload", "pageable"),
    "layerwise-offload, mapped": ours("layerwise-offload", "mapped"),
}


def child(variant: str, folder: Path) -> None:
    """Import everything, wait for a line, load, and print what was held and how long it took."""
    import diffusers
    import torch

    import framework.platforms.sim.platform
    import framework.runtime.placed
    from framework.loading.load import quiet_libraries

    assert diffusers.WanTransformer3DModel
    assert framework.runtime.placed
    quiet_libraries()
    torch.set_num_threads(1)
    print("ready", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    held = VARIANTS[variant](folder)
    print(json.dumps({"held_bytes": held, "seconds": time.perf_counter() - started}), flush=True)
    sys.stdin.readline()


# In the parent


def measure(variant: str, folder: Path) -> dict[str, float]:
    """Run one variant and return its seconds, peak anonymous bytes, and the bytes its tiers hold at the end."""
    command = [sys.executable, "-m", "bench.load_memory", "--child", variant, "--folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{variant}: the child ended before it began")
        before = peak = anonymous_bytes(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while not waiting.select(POLL_S):
                peak = max(peak, anonymous_bytes(process.pid))
        answer = process.stdout.readline()
        peak = max(peak, anonymous_bytes(process.pid))
        process.stdin.write("\n")
    if not answer:
        raise SystemExit(f"{variant}: failed, see above")
    return {**json.loads(answer), "peak_bytes": peak - before}


def anonymous_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the checkpoint is, or shall be made and kept")
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="VARIANT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "model"
        if not (folder / "transformer").is_dir():
            make_checkpoint(folder, options.layers)
        size = sum(file.stat().st_size for file in (folder / "transformer").glob("*.safetensors"))
        found = {variant: measure(variant, folder) for variant in options.only}
    report(found, size, options.json)


def report(found: dict[str, dict[str, float]], size: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"checkpoint_bytes": size, "variants": found}))
    else:
        print(f"checkpoint of {size / 1e9:.2f} GB in bfloat16")
        for variant, row in found.items():
            ratio = f"{row['peak_bytes'] / row['held_bytes']:5.2f}" if row["held_bytes"] else "    -"
            print(
                f"{variant:28s} peak {row['peak_bytes'] / 1e9:5.2f} GB = {row['peak_bytes'] / size:5.2f} x checkpoint, "
                f"{ratio} x held, {row['seconds']:5.1f} s"
            )
    over = [v for v, row in found.items() if row["peak_bytes"] > LIMIT * row["held_bytes"] + SLACK_BYTES]
    over = [variant for variant in over if not variant.startswith("from_pretrained")]
    if over:
        raise SystemExit(f"more than {LIMIT} x what is held: {', '.join(over)}")


if __name__ == "__main__":
    main()
