"""Turns checked plain data into the frozen dataclasses of `framework.spec`. No torch."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from framework.paths import expand
from framework.spec import (
    ComponentSpec,
    ComponentUse,
    ModelSpec,
    OutputSpec,
    PipelineSpec,
    SchedulerSpec,
    StageSpec,
)

T = TypeVar("T")


def build_pipeline(data: Mapping[str, Any]) -> PipelineSpec:
    """Build the pipeline from the composed `pipeline` mapping, which the checks have found complete."""
    return PipelineSpec(
        name=data["name"],
        family=data.get("family"),
        backend=data.get("backend") or "standard",
        model=_make(ModelSpec, data["model"]),
        components={name: _component(name, value) for name, value in data["components"].items() if value is not None},
        stages={name: _stage(name, value or {}) for name, value in data["stages"].items()},
        scheduler=_scheduler(data.get("scheduler") or {}),
        args=dict(data.get("args") or {}),
        hints=_said(data.get("hints") or {}),
    )


def build_output(data: Mapping[str, Any]) -> OutputSpec:
    said = _said(data)
    if "root" in said:
        said["root"] = expand(said["root"])
    return _make(OutputSpec, said)


def _component(name: str, data: Mapping[str, Any]) -> ComponentSpec:
    """`layers: []` says that there is no block list, so its lengths are known too: none."""
    said = _said(data)
    if said.get("layers") == []:
        said.setdefault("num_layers", [])
    return _make(
        ComponentSpec,
        {
            **said,
            "name": name,
            "layers": tuple(said.get("layers", ())),
            "num_layers": tuple(said["num_layers"]) if "num_layers" in said else None,
        },
    )


def _stage(name: str, data: Mapping[str, Any]) -> StageSpec:
    uses = data.get("component_uses")
    return StageSpec(
        name=name,
        kind=data["kind"],
        after=tuple(data.get("after") or ()),
        inputs=dict(data.get("inputs") or {}),
        outputs=dict(data.get("outputs") or {}),
        component_uses=None if uses is None else tuple(_make(ComponentUse, use) for use in uses),
    )


def _scheduler(data: Mapping[str, Any]) -> SchedulerSpec:
    shift = data.get("flow_shift")
    return SchedulerSpec(
        class_name=data.get("class"),
        options=dict(data.get("options") or {}),
        flow_shift=None if shift is None else float(shift),
    )


def _said(data: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that somebody gave a value."""
    return {key: value for key, value in data.items() if value is not None}


def _make(kind: type[T], data: Mapping[str, Any]) -> T:
    """Build `kind` from the keys it knows, leaving unset keys to its own defaults."""
    names = {spec.name for spec in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in _said(data).items() if key in names})
