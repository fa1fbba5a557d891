"""Plan problems for the tests of the planner: the layouts of real models, and small random ones. No torch."""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from framework.memory.host_budget import HostMemory
from framework.planning.facts import (
    Budgets,
    CallCount,
    CallWork,
    ComponentSizes,
    LayerSize,
    RunWork,
    StackSizes,
    StageWork,
    Work,
)
from framework.planning.problem import NO_RESERVE, PlanProblem
from framework.platforms.hardware import GIB, HardwareProfile, load_hardware
from framework.spec import ComponentUse

MIB = 1024**2


@cache
def card(name: str) -> HardwareProfile:
    """A shipped profile, read once."""
    return load_hardware(name)


def sizes(
    name: str, group: str, stacks: Sequence[Sequence[float]], rest: float, table: float = 0, **options: Any
) -> ComponentSizes:
    """A component by the bytes of its layers, stack by stack, and of what is outside them."""
    made = tuple(
        StackSizes(f"s{i}", tuple(LayerSize(int(size) // 256 * 256, 20) for size in stack))
        for i, stack in enumerate(stacks)
    )
    whole = sum(layer.size_bytes for stack in made for layer in stack.layers) + int(rest) + int(table)
    known = {"dtype": "bfloat16", "file_dtype": "bfloat16", "source": "headers", **options}
    return ComponentSizes(
        name=name,
        group=group,
        class_name=None,
        size_bytes=whole,
        stacks=made,
        leftover_bytes=int(rest),
        table_bytes=int(table),
        **known,
    )


def call(part: ComponentSizes, tflop: float, activations: float) -> CallWork:
    """A forward of `tflop`, shared out to the layers by their bytes; without layers all at once."""
    flat = [(stack.path, i, layer.size_bytes) for stack in part.stacks for i, layer in enumerate(stack.layers)]
    whole = sum(size for _, _, size in flat)
    return CallWork(
        component=part.name,
        entry_point="forward",
        layers=tuple((path, i) for path, i, _ in flat),
        layer_work=tuple(Work(matmul_flops=tflop * 1e12 * size / whole, launches=40) for _, _, size in flat),
        before=Work(launches=10) if flat else Work(conv_flops=tflop * 1e12, launches=300, dtype="float32"),
        activation_bytes=int(activations),
        live_bytes=10 * MIB,
    )


def use(component: str, phase: str | None = None, entry: bool = False, **options: Any) -> ComponentUse:
    return ComponentUse(component=component, phase=phase, start_at_stage_entry=entry, **options)


def stage(name: str, *calls: tuple[CallWork, int], extra: int = 0) -> StageWork:
    return StageWork(
        stage=name, calls=tuple(CallCount(call=one, count=count) for one, count in calls), extra_bytes=extra
    )


def wan(hardware: str, tflop: float = 1678, activations: float = 4e9, **options: Any) -> PlanProblem:
    """Wan 2.2 A14B, 81 frames at 480p: an encoder, two experts, a VAE."""
    encoder = sizes("text_encoder", "text_encoder", [[368 * MIB] * 24], 0.05e9, table=2.1e9)
    experts = [sizes(name, "dit", [[670.2 * MIB] * 40], 0.46e9) for name in ("transformer", "transformer_2")]
    vae = sizes("vae", "vae", [], 0.51e9, dtype="float32", file_dtype="float32")
    stages = (
        stage("encode", (call(encoder, 5, 1e8), 2)),
        stage("denoise", (call(experts[0], tflop, activations), 26), (call(experts[1], tflop, activations), 54)),
        stage("decode", (call(vae, 200, 3e9), 1)),
    )
    return PlanProblem(
        components={part.name: part for part in (encoder, *experts, vae)},
        work=RunWork(stages=stages),
        uses={
            "encode": (use("text_encoder"),),
            "denoise": (use("transformer", "high"), use("transformer_2", "low")),
            "decode": (use("vae", entry=True),),
        },
        hardware=card(hardware),
        **options,
    )


def flux(hardware: str, **options: Any) -> PlanProblem:
    """FLUX.1-dev at 1024 px: two encoders in one stage, a transformer of two kinds of layers, a VAE."""
    clip = sizes("text_encoder", "text_encoder", [[13 * MIB] * 12], 0.08e9)
    t5 = sizes("text_encoder_2", "text_encoder", [[368 * MIB] * 24], 0.27e9)
    denoiser = sizes("transformer", "dit", [[648.2 * MIB] * 19, [270.1 * MIB] * 38], 0.12e9)
    vae = sizes("vae", "vae", [], 0.17e9)
    stages = (
        stage("encode", (call(clip, 0.02, 1e7), 1), (call(t5, 5, 1e8), 1)),
        stage("denoise", (call(denoiser, 74.4, 1e9), 28)),
        stage("decode", (call(vae, 10, 2e9), 1)),
    )
    return PlanProblem(
        components={part.name: part for part in (clip, t5, denoiser, vae)},
        work=RunWork(stages=stages),
        uses={
            "encode": (use("text_encoder"), use("text_encoder_2")),
            "denoise": (use("transformer"),),
            "decode": (use("vae", entry=True),),
        },
        hardware=card(hardware),
        **options,
    )


def qwen(hardware: str, **options: Any) -> PlanProblem:
    """Qwen-Image at 1024 px: sixty layers alike, bound by the bus on most cards."""
    denoiser = sizes("transformer", "dit", [[648.2 * MIB] * 60], 0.1e9)
    return PlanProblem(
        components={"transformer": denoiser},
        work=RunWork(stages=(stage("denoise", (call(denoiser, 70.6, 1e9), 100)),)),
        uses={"denoise": (use("transformer"),)},
        hardware=card(hardware),
        host=HostMemory(128 * GIB, 128 * GIB),
        **options,
    )


def eight(hardware: str, **options: Any) -> PlanProblem:
    """Eight components: four encoders, two experts with a helper beside them, a VAE."""
    encoders = [sizes(f"encoder_{i}", "text_encoder", [[(60 + 90 * i) * MIB] * (12 + 6 * i)], 2e8) for i in range(4)]
    experts = [sizes(name, "dit", [[500 * MIB] * 40], 3e8) for name in ("transformer", "transformer_2")]
    helper = sizes("controlnet", "dit", [[400 * MIB] * 8], 1e8)
    vae = sizes("vae", "vae", [], 3e8)
    stages = (
        stage("encode", *((call(part, 2, 1e8), 2) for part in encoders)),
        stage(
            "denoise", (call(helper, 30, 5e8), 30), (call(experts[0], 120, 2e9), 12), (call(experts[1], 120, 2e9), 18)
        ),
        stage("decode", (call(vae, 20, 2e9), 1)),
    )
    return PlanProblem(
        components={part.name: part for part in (*encoders, *experts, helper, vae)},
        work=RunWork(stages=stages),
        uses={
            "encode": tuple(use(part.name) for part in encoders),
            "denoise": (use("controlnet", entry=True), use("transformer", "high"), use("transformer_2", "low")),
            "decode": (use("vae", entry=True),),
        },
        hardware=card(hardware),
        **options,
    )


def small(seed: int) -> PlanProblem:
    """Two or three little components in one to three stages, with budgets between too little and plenty."""
    draw = Random(seed)
    count = draw.choice((2, 2, 3))
    names = [f"part_{i}" for i in range(count)]
    parts = [
        sizes(
            name,
            draw.choice(("dit", "vae")),
            [[draw.randint(1, 9) * MIB for _ in range(draw.randint(1, 3))] for _ in range(draw.randint(0, 1))],
            draw.randint(1, 4) * MIB,
            file_dtype=draw.choice(("bfloat16", "float32")),
        )
        for name in names
    ]
    cut = draw.randint(1, count)
    phased = draw.random() < 0.3
    uses = {
        "first": tuple(use(n, n if phased else None, entry=not phased and draw.random() < 0.4) for n in names[:cut]),
        "second": tuple(use(n, entry=draw.random() < 0.4) for n in names[cut:]),
    }
    calls = {
        part.name: (call(part, draw.choice((1e-4, 1e-2, 0.3)), draw.randint(0, 6) * MIB), draw.randint(1, 9))
        for part in parts
    }
    whole = sum(part.size_bytes or 0 for part in parts)
    scarce = count == 2
    return PlanProblem(
        components={part.name: part for part in parts},
        work=RunWork(
            stages=(
                stage("first", *(calls[name] for name in names[:cut]), extra=MIB),
                stage("second", *(calls[name] for name in names[cut:])),
            )
        ),
        uses=uses,
        hardware=card("rtx_4090"),
        reserve=NO_RESERVE,
        budgets=Budgets(
            device=int(whole * draw.uniform(0.3, 1.5)) + 8 * MIB,
            pinned=int(whole * draw.uniform(0.2, 1.2)) if scarce else None,
            host=int(whole * draw.uniform(0.6, 1.3)) if scarce and draw.random() < 0.5 else None,
        ),
        host=HostMemory(64 * GIB, 64 * GIB),
        simplicity_s=0.0,
    )
