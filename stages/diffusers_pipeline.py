"""Stage `diffusers_pipeline`: any pipeline of diffusers as a whole, by its own call. No torch at import.

Nothing is written for a family: the class comes from the folder's index, arguments from the signature of its call, and
each component's use begins when the call reaches it.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from framework.errors import Problem
from framework.registry import register_stage
from framework.runtime.call_arguments import (
    COUNTS,
    FILES,
    call_arguments,
    call_parameters,
    check_arguments,
    is_picture,
    parameter_of,
)
from framework.runtime.family_calls import scheduler_steps
from framework.spec import ComponentUse, PipelineSpec, RequestSpec

if TYPE_CHECKING:
    from framework.runtime.context import StageContext
    from framework.values import Value

CALLBACK = "callback_on_step_end"
SIDE_NETWORKS = ("controlnet", "adapter")  # these run in turn with the denoiser, not before or after it


@register_stage("diffusers_pipeline")
class DiffusersPipeline:
    """Runs the whole call and writes its pictures; a request says what it can, `pipeline.args` the rest."""

    inputs: tuple[str, ...] = ()
    optional_inputs: tuple[str, ...] = ()
    outputs = ("frames",)

    @staticmethod
    def uses_of(pipeline: PipelineSpec) -> tuple[ComponentUse, ...]:
        """Every component of the pipeline, from its first call on.

        Encoders, each denoiser and the VAE are phases, so that a call of one lets go of the others; denoisers with
        a side network run in turn and share a phase. A helper in no group stays to the end.
        """
        in_turn = any(mark in name for name in pipeline.components for mark in SIDE_NETWORKS)
        return tuple(
            ComponentUse(
                component=name,
                phase=name if component.group == "dit" and not in_turn else component.group,
                start_at_stage_entry=False,
                memory_intensive=component.group == "vae",
            )
            for name, component in pipeline.components.items()
        )

    @staticmethod
    def check_call(pipeline_class: Any, args: Mapping[str, Any], requests: Sequence[RequestSpec]) -> list[Problem]:
        """Return what the call of `pipeline_class` could not honour; run before anything is loaded."""
        return check_arguments(pipeline_class, args, requests)

    def run(self, ctx: "StageContext") -> "dict[str, Value]":
        from framework.runtime.pictures import frames_of, joined

        view = ctx.pipeline_view()
        arguments = _arguments(ctx, view)
        fps = _fps(ctx, view)
        decoder = getattr(getattr(view, "vae", None), "decoder", None)
        parts = []
        with ctx.uses_at_call(), ctx.watch_outputs(decoder, "the VAE's decoder"):
            for own in _calls(ctx, view):
                with _steps(ctx, view):
                    output = view(**arguments, **own)
                if getattr(output, "audio", None) is not None:
                    ctx.note(f"{type(view).__name__} also returned sound, which is not kept")
                parts.append(frames_of(output, fps))
        return {"frames": joined(parts)}


def _arguments(ctx: "StageContext", view: Any) -> dict[str, Any]:
    """What every call gets: the request's values with files read, and what the stage owns."""
    from framework.runtime.pictures import read_picture, read_video

    parameters = call_parameters(type(view))
    arguments = call_arguments(type(view), ctx.arguments, ctx.request)
    for name, value in ctx.arguments.items():
        if is_picture(value, parameters[name]):
            arguments[name] = read_picture(value, f"pipeline.args.{name}")
    for key in FILES:
        taken, file = parameter_of(key, parameters), getattr(ctx.request, key)
        if taken is not None and file is not None:
            read: Any = read_video if key == "video" else read_picture
            arguments[taken] = read(file, f"request.{key}")
    owned = {"output_type": "pt", CALLBACK: _step_reporter(ctx)}
    return {**arguments, **{name: value for name, value in owned.items() if name in parameters}}


def _calls(ctx: "StageContext", view: Any) -> list[dict[str, Any]]:
    """Generators and count of each call: one call where the pipeline can count outputs, else one for each seed."""
    parameters = call_parameters(type(view))
    generators = ctx.generators()
    counted = next((name for name in COUNTS if name in parameters), None)
    if counted is None or len(generators) == 1:
        return [{"generator": generator} if "generator" in parameters else {} for generator in generators]
    return [{counted: len(generators), **({"generator": generators} if "generator" in parameters else {})}]


def _fps(ctx: "StageContext", view: Any) -> int | None:
    """Frames each second: the request's, else the rate that the pipeline itself works with."""
    if ctx.request.fps is not None:
        return ctx.request.fps
    parameters = call_parameters(type(view))
    name = parameter_of("fps", parameters)
    default = parameters[name].default if name is not None else None
    return round(default) if isinstance(default, int | float) else None


def _steps(ctx: "StageContext", view: Any) -> AbstractContextManager[None]:
    """Counts steps at the scheduler where the call has no callback, or one of the older kind that cannot stop it."""
    scheduler = getattr(view, "scheduler", None)
    if CALLBACK in call_parameters(type(view)) or not hasattr(scheduler, "step"):
        return nullcontext()
    return scheduler_steps(ctx, scheduler)


def _step_reporter(ctx: "StageContext") -> Any:
    def report(pipeline: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        known = getattr(pipeline, "num_timesteps", None) or ctx.request.num_inference_steps or 0
        ctx.step(step + 1, max(step + 1, known), values.get("latents"))
        return values

    return report
