"""The checkpoint's scheduler, or the one the pipeline asks for instead. Imports diffusers inside its functions."""

import inspect
from typing import Any

from framework.errors import ConfigError, did_you_mean
from framework.loading.index import ModelIndex
from framework.spec import SchedulerSpec

SHIFT_OPTIONS = ("flow_shift", "shift")  # as UniPC and DPM++ call it, and as the flow-matching ones do
KEY = "pipeline.scheduler"


def override_scheduler(scheduler: Any, spec: SchedulerSpec) -> Any:
    """Return `scheduler`, or one built from its config with what `spec` sets.

    Raises `ConfigError` for a class that is no scheduler of diffusers and for an option that its class does not have.
    """
    if not _asks(spec):
        return scheduler
    chosen = type(scheduler) if spec.class_name is None else _scheduler_class(spec.class_name)
    return chosen.from_config(scheduler.config, **_options(chosen, spec))


def check_scheduler(index: ModelIndex, spec: SchedulerSpec) -> None:
    """Raise the `ConfigError` of `override_scheduler` from the classes alone, before a weight is read."""
    if not _asks(spec):
        return
    import diffusers

    listed = index.components.get("scheduler")
    own = getattr(diffusers, listed.name, None) if listed and listed.library == "diffusers" else None
    chosen = _scheduler_class(spec.class_name) if spec.class_name else own
    if chosen is not None:  # else it is code from the model's folder, which is looked at once it is loaded
        _options(chosen, spec)


def _asks(spec: SchedulerSpec) -> bool:
    return spec.class_name is not None or bool(spec.options) or spec.flow_shift is not None


def _options(chosen: Any, spec: SchedulerSpec) -> dict[str, Any]:
    """What `spec` sets, under the names that the class `chosen` gives it."""
    known = [name for name in inspect.signature(chosen.__init__).parameters if name != "self"]
    options = dict(spec.options)
    for name in options:
        if name not in known:
            reason = f"{chosen.__name__} has no option '{name}'"
            raise ConfigError.of(f"{KEY}.options.{name}", reason, hint=did_you_mean(name, known))
    if spec.flow_shift is not None:
        options[_shift_option(chosen, known)] = spec.flow_shift
    return options


def _scheduler_class(name: str) -> Any:
    import diffusers

    found = getattr(diffusers, name, None)
    if not isinstance(found, type) or not issubclass(found, diffusers.SchedulerMixin):
        names = [entry for entry in dir(diffusers) if entry.endswith("Scheduler")]
        raise ConfigError.of(f"{KEY}.class", f"diffusers has no scheduler '{name}'", hint=did_you_mean(name, names))
    return found


def _shift_option(chosen: Any, known: list[str]) -> str:
    for name in SHIFT_OPTIONS:
        if name in known:
            return name
    raise ConfigError.of(f"{KEY}.flow_shift", f"{chosen.__name__} has no flow shift")
