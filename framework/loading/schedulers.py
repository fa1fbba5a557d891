"""The checkpoint's scheduler, or the one the pipeline asks for instead. Imports diffusers inside its functions."""

import inspect
from typing import Any

from framework.errors import ConfigError, did_you_mean
from framework.spec import SchedulerSpec

SHIFT_OPTIONS = ("flow_shift", "shift")  # as UniPC and DPM++ call it, and as the flow-matching ones do
KEY = "pipeline.scheduler"


def override_scheduler(scheduler: Any, spec: SchedulerSpec) -> Any:
    """Return `scheduler`, or one built from its config with what `spec` sets.

    Raises `ConfigError` for a class that is no scheduler of diffusers and for an option that its class does not have.
    """
    if spec.class_name is None and not spec.options and spec.flow_shift is None:
        return scheduler
    chosen = type(scheduler) if spec.class_name is None else _scheduler_class(spec.class_name)
    known = [name for name in inspect.signature(chosen.__init__).parameters if name != "self"]
    options = dict(spec.options)
    for name in options:
        if name not in known:
            reason = f"{chosen.__name__} has no option '{name}'"
            raise ConfigError.of(f"{KEY}.options.{name}", reason, hint=did_you_mean(name, known))
    if spec.flow_shift is not None:
        options[_shift_option(chosen, known)] = spec.flow_shift
    return chosen.from_config(scheduler.config, **options)


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
