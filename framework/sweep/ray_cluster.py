"""The nodes of a Ray cluster as the devices of a sweep, and workers on them. Imports ray in functions only."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from framework.errors import ConfigError
from framework.planning.machine import shipped_names
from framework.sweep import process
from framework.sweep.devices import HINT, KEY, Device, counted, place_on_processor, simulated
from framework.sweep.process import own_path
from framework.sweep.ray_seat import Seat
from framework.sweep.ray_worker import RayWorker
from framework.sweep.settings import RaySettings

CARD, ACCELERATOR = "card:", "accelerator_type:"
TOUCH = 0.001  # of a resource that says what a node is, not how much of it there is
ADDRESS = "sweep.ray.address"


def is_connected() -> bool:
    """Whether this process is part of a cluster; imports nothing."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def disconnect() -> None:
    """Leave the cluster, and end one that was started here."""
    if is_connected():
        sys.modules["ray"].shutdown()


def connect(settings: RaySettings) -> None:
    """Join the cluster at `settings.address`, or start one on this machine. Raises `ConfigError`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError.of(
            "sweep.engine", "'ray' needs the package ray", hint="pip install 'framework[ray]'"
        ) from None
    if ray.is_initialized():
        return
    own: dict[str, Any] = {}
    if settings.address is not None:
        _knock(settings.address)
    if settings.address is None:
        own = {"include_dashboard": False, "runtime_env": {"env_vars": {"PYTHONPATH": own_path()}}}
    try:
        ray.init(address=settings.address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray raises its own, gRPC's and the system's errors here
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = f"cannot join the cluster at '{settings.address}': {lines[0]}"
        raise ConfigError.of(ADDRESS, reason, hint="is `ray start --head` running there?") from error


def _knock(address: str) -> None:
    """Ray tries for minutes to reach a head that is not there; a closed port is known at once."""
    host, colon, port = address.rpartition(":")
    if not colon or "/" in address or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        reason = f"nobody answers at '{address}': {error}"
        raise ConfigError.of(ADDRESS, reason, hint="is `ray start --head` running there?") from None


class Cluster:
    """Hires workers on the nodes of the cluster that this process is part of."""

    def __init__(self, settings: RaySettings, plugins: Sequence[str] = ()) -> None:
        self._settings, self._plugins = settings, plugins

    def hire(self, device: Device, log: Path, share: int) -> RayWorker:
        """Start an actor on the node of `device`, of which `share` jobs use one device. `log` is not used there."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        assert device.node is not None
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}
        options["num_gpus"] = device.count / share if device.kind == "cuda" else 0
        options["resources"] = dict.fromkeys(device.resources, TOUCH)
        if self._settings.memory_bytes is not None:
            options["memory"] = self._settings.memory_bytes
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(device.node, soft=False)
        actor = ray.remote(Seat).options(**options)
        return RayWorker(
            actor.remote(device.kind, dict(device.environment), process.MODULE, list(self._plugins)), device
        )

    def is_there(self, device: Device) -> bool:
        """Whether the node of `device` is alive as far as Ray knows."""
        return any(node["NodeID"] == device.node for node in _alive())


def cluster_devices(wanted: str | int | Sequence[int | str]) -> list[Device]:
    """Return the devices of the cluster: all its GPUs, a place on each node without any, or those that are counted.

    Raises `ConfigError` for anything else, and for a cluster without a node.
    """
    nodes = _alive()
    if not nodes:
        raise ConfigError.of(ADDRESS, "the cluster has no node")
    names = _names(nodes)
    text = str(wanted).strip()
    found = counted(text)
    if found is not None:
        kind, count = found
        make = simulated if kind == "sim" else place_on_processor
        return [_on(node, names, make(index)) for index, node in enumerate(islice(cycle(nodes), count))]
    if text != "auto":
        raise ConfigError.of(KEY, f"'{text}' names no devices of a cluster", hint=HINT.replace(" 0,1,", ""))
    gpus = [(node, number) for node in nodes for number in range(int(node["Resources"].get("GPU", 0)))]
    if gpus:
        return [_on(node, names, Device("cuda", index, f"cuda:{own}", {})) for index, (node, own) in enumerate(gpus)]
    return [_on(node, names, place_on_processor(index)) for index, node in enumerate(nodes)]


def _on(node: Mapping[str, Any], names: Mapping[str, str], device: Device) -> Device:
    """The device as part of a node; resources that tell what the node is are asked for with it."""
    told = [name for name in node["Resources"] if name.startswith(CARD)]
    if device.kind == "cuda":
        told += [name for name in node["Resources"] if name.startswith(ACCELERATOR)]
    environment = device.environment if device.kind != "cuda" else {}
    identity = str(node["NodeID"])
    label = f"{device.label}@{names[identity]}"
    return Device(device.kind, device.index, label, environment, identity, _card(told), tuple(told))


def _card(told: Sequence[str]) -> str | None:
    """The shipped profile of a node's card: as its `card:` says, else as Ray calls it; None: not known."""
    shipped = shipped_names()
    for name in told:
        card = name.removeprefix(CARD).removeprefix(ACCELERATOR).lower().replace("-", "_")
        if card in shipped:
            return card
        if name.startswith(CARD):
            raise ConfigError.of("sweep.ray", f"a node has the resource '{name}', and there is no profile '{card}'")
    return None


def _alive() -> list[Mapping[str, Any]]:
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return sorted(nodes, key=lambda node: (str(node["NodeManagerHostname"]), str(node["NodeID"])))


def _names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Names of nodes by their identity; a second one of the same host gets a number."""
    seen: dict[str, int] = {}
    found = {}
    for node in nodes:
        host = str(node["NodeManagerHostname"])
        seen[host] = seen.get(host, 0) + 1
        found[str(node["NodeID"])] = host if seen[host] == 1 else f"{host}-{seen[host]}"
    return found
