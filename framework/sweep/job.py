"""One job of a sweep: what it is, what tells it apart from others, and what a worker gets of it. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from framework.compose.composer import Composed
from framework.compose.provenance import Provenance, Setting
from framework.errors import Origin
from framework.outputs.hashing import config_sha256
from framework.outputs.redact import redact
from framework.runtime.load_key import load_key
from framework.spec import RunSpec
from framework.sweep.spread import without_devices

ANY_DEVICE = "auto"


@dataclass(frozen=True, slots=True)
class Room:
    """What a card has for tensors, and what the job's plan takes of it at the peak; None: not known."""

    capacity_bytes: int
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A checked job. `words` is its whole command line, `values` what it sets of the axes, by key.

    `identity` tells it apart from every other job, `content` from every other picture (no device in it). `refusal` says
    why it is not run; `parcel` is None where it could not even be composed. Jobs of one `load_key` share weights.
    `device_index` binds it to one device of those that this process sees; `unfit` are cards too small for its plan,
    `rooms` what the others have.
    """

    number: int
    words: tuple[str, ...]
    values: Mapping[str, Any]
    identity: str
    content: str
    load_key: str = ""
    device_index: int | None = None
    refusal: str | None = None
    parcel: Mapping[str, Any] | None = None
    spec: RunSpec | None = None
    unfit: frozenset[str | None] = frozenset()
    rooms: Mapping[str | None, Room] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its folder: short, the same on every system, unique in its sweep."""
        return f"{self.number:04d}-{self.identity[:8]}"


def content_of(config: Mapping[str, Any]) -> str:
    """Hash what a job makes: its config without devices and without where its results go."""
    output = {key: value for key, value in (config.get("output") or {}).items() if key not in ("root", "name")}
    kept = {key: value for key, value in without_devices(config).items() if key not in ("sweep", "device", "output")}
    return config_sha256(redact({**kept, "output": output}))


def identity_of(content: str, device: str) -> str:
    """Hash what tells a job apart: its content, and the devices that the user bound it to."""
    return config_sha256({"content": content, "device": device})


def identity_of_words(words: Sequence[str]) -> str:
    """The same for a job that cannot be composed."""
    return config_sha256({"words": sorted(words)})


def order_of(spec: RunSpec) -> str:
    """Text to sort by: jobs of one load key stand together, those of the same adapters next to each other in it."""
    return f"{load_key(spec)} {spec.loras!r}"


def pack(composed: Composed) -> dict[str, Any]:
    """Return a composed config as JSON data, for another process to check again and run."""
    settings = {
        key: [[setting.value, setting.origin.layer, setting.origin.where] for setting in said]
        for key, said in composed.provenance.settings.items()
    }
    places = [[list(path), where] for path, where in composed.provenance.places.items()]
    return {"data": composed.data, "settings": settings, "places": places}


def unpack(parcel: Mapping[str, Any]) -> Composed:
    """Undo `pack`."""
    settings = {
        key: [Setting(value, Origin(layer, where)) for value, layer, where in said]
        for key, said in parcel["settings"].items()
    }
    places = {tuple(path): where for path, where in parcel["places"]}
    return Composed(dict(parcel["data"]), Provenance(settings, places))
