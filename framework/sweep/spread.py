"""Several devices for each job: which belong together, and which component computes on which. No torch."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from framework.compose.composer import Composed
from framework.compose.selectors import group_of
from framework.errors import ConfigError, Origin
from framework.sweep.devices import Device

KEY = "sweep.devices_per_job"
DENOISER = "dit"
AUTOMATIC = "automatic"


def together(devices: Sequence[Device], per_job: int) -> tuple[list[Device], list[Device]]:
    """Return groups of `per_job` devices of one machine as one device each, and those that are left over.

    Raises `ConfigError` where there is no such group.
    """
    if per_job == 1:
        return list(devices), []
    if any(device.kind == "none" for device in devices):
        raise ConfigError.of(KEY, "a place on the processor is no device", hint="use GPUs or sim:N, or leave it out")
    groups, left = [], []
    for _, own in groupby(devices, key=lambda device: device.node):
        listed = list(own)
        whole = len(listed) // per_job * per_job
        groups += [listed[start : start + per_job] for start in range(0, whole, per_job)]
        left += listed[whole:]
    if not groups:
        raise ConfigError.of(KEY, f"a job is to have {per_job} devices, and no machine has more than {len(left)}")
    return [_one(number, group) for number, group in enumerate(groups)], left


def _one(index: int, group: Sequence[Device]) -> Device:
    first = group[0]
    environment = {name: ",".join(device.environment[name] for device in group) for name in first.environment}
    numbers = "+".join(device.label.partition("@")[0].partition(":")[2] for device in group)
    at = first.label.partition("@")[2]
    label = f"{first.kind}:{numbers}{f'@{at}' if at else ''}"
    return Device(first.kind, index, label, environment, first.node, first.card, first.resources, len(group))


def spread(composed: Composed, kind: str, per_job: int) -> None:
    """Put denoisers on the devices of a job after its first one, where the config places no component itself.

    Raises `ConfigError` for a component on a device that the job does not have.
    """
    components, said = _parts(composed.data), component_devices(composed.data)
    for name, device in said.items():
        key = f"pipeline.components.{name}.device"
        own_kind, _, number = device.partition(":")
        if own_kind == kind and (number or "0").isdecimal() and int(number or 0) >= per_job:
            has = ", ".join(f"{kind}:{number}" for number in range(per_job))
            reason = f"the job does not have {device}"
            raise ConfigError.of(
                key, reason, composed.provenance.locate(key), f"it has {has}; --devices-per-job gives more"
            )
    if said or per_job == 1:
        return
    groups = {name: part.get("group") for name, part in components.items()}
    named = {name: group for name, group in groups.items() if group is None or isinstance(group, str)}
    denoisers = [name for name, group in named.items() if group_of(name, group) == DENOISER]
    origin = Origin(AUTOMATIC, f"--devices-per-job {per_job}")
    for index, name in enumerate(denoisers):
        device = f"{kind}:{1 + index % (per_job - 1)}"
        components[name]["device"] = device
        composed.provenance.put(("pipeline", "components", name, "device"), device, origin)


def component_devices(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the devices of components that have one of their own in a composed config."""
    said = {name: part.get("device") for name, part in _parts(config).items()}
    return {name: device for name, device in said.items() if isinstance(device, str)}


def _parts(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The components of composed data that nobody has checked yet: what is no map is refused later, by name."""
    pipeline = config.get("pipeline")
    components = pipeline.get("components") if isinstance(pipeline, Mapping) else None
    listed = components.items() if isinstance(components, Mapping) else ()
    return {name: part for name, part in listed if isinstance(part, dict)}


def without_devices(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a composed config without them: they do not change what it makes."""
    if not component_devices(config):
        return dict(config)
    pipeline = config["pipeline"]
    parts = {
        name: part and {key: value for key, value in part.items() if key != "device" or value is None}
        for name, part in pipeline["components"].items()
    }
    return {**config, "pipeline": {**pipeline, "components": parts}}
