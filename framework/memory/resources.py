"""What all components on one device share: platform, copy stream, host budget, rings. Imports torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from framework.memory.courier import STAGING_BUFFERS, STAGING_BYTES, Courier
from framework.memory.host_budget import read_host_memory
from framework.memory.host_ledger import HostLedger
from framework.memory.host_store import HostStore
from framework.memory.host_table import TABLE_BYTES
from framework.memory.mapped_files import MappedFiles
from framework.memory.pin_ledger import PinLedger
from framework.memory.ring import Ring
from framework.platforms import make_platform
from framework.platforms.protocol import Platform

PAGE_BYTES = 4096
STAGING = "staging"  # stands for a component in the books


@dataclass(frozen=True, slots=True)
class Resources:
    """Make one for each device and hand it to every strategy there.

    `layers` are the YAML's block-list paths by component; `ring_names` lets components share a ring (the two experts
    of one stage): those with one name have one ring. `parked` components give up what lies outside their layers
    between uses.
    """

    courier: Courier
    store: HostStore
    layers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ring_names: Mapping[str, str] = field(default_factory=dict)
    parked: frozenset[str] = frozenset()
    table_bytes: int = TABLE_BYTES
    rings: dict[str, Ring] = field(default_factory=dict)

    @property
    def platform(self) -> Platform:
        return self.courier.platform

    def ring(self, component: str) -> Ring:
        """Return the ring of `component`, made on first use."""
        name = self.ring_names.get(component, component)
        return self.rings.setdefault(name, Ring(self.courier))


def make_resources(
    device: "torch.device | Platform",
    *,
    pinned_budget_bytes: int | None = None,
    host_budget_bytes: int | None = None,
    layers: Mapping[str, tuple[str, ...]] | None = None,
    ring_names: Mapping[str, str] | None = None,
    parked: frozenset[str] = frozenset(),
    tiers: Mapping[str, str] | None = None,
) -> Resources:
    """Return fresh resources for a device (or its platform), with what the host has left now as the pin budget.

    The budgets bound page-locked memory (staging buffers included) and all memory of the weights' own on the host;
    `tiers` are those of `HostStore`.
    """
    platform = make_platform(str(device)) if isinstance(device, torch.device) else device
    ledger = PinLedger(read_host_memory(), pinned_budget_bytes)
    bounded = pinned_budget_bytes is not None or host_budget_bytes is not None
    host = HostLedger(host_budget_bytes)
    staging_bytes = _book_staging(platform, ledger, host) if bounded else STAGING_BYTES
    store = HostStore(platform, ledger, MappedFiles(), host=host, tiers=tiers or {})
    return Resources(Courier(platform, staging_bytes), store, layers or {}, ring_names or {}, parked)


def _book_staging(platform: Platform, ledger: PinLedger, host: HostLedger) -> int:
    """Book the staging buffers, at most a quarter of a budget, and return the size of one; 0: the budget is too small.

    They come first because everything that gets no pin goes through them.
    """
    if not platform.pins:
        return 0
    spendable = min(ledger.spendable_bytes, host.limit_bytes if host.limit_bytes is not None else STAGING_BYTES * 8)
    size = min(STAGING_BYTES, spendable // (4 * STAGING_BUFFERS) // PAGE_BYTES * PAGE_BYTES)
    for number in range(STAGING_BUFFERS if size else 0):
        ledger.request(STAGING, f"buffer.{number}", size)
        host.book(STAGING, f"buffer.{number}", size)
    return size
