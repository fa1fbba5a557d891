"""A plan's word for a component's host memory is kept: not pinned, or left in its file."""

import memory_builders as build
import pytest
import torch
from torch import nn

from framework.memory.ownership import collect_weights
from framework.memory.parcel import Parcel


def parcel(tier: str | None, *, in_file: bool, writable: bool = False) -> tuple[Parcel, int]:
    """A layer of component `c` whose plan says `tier`, and the bytes booked on the host's ledger."""
    resources = build.resources(is_mapped=lambda tensor: in_file, tiers={"c": tier} if tier else {})
    module = nn.Linear(8, 8).requires_grad_(False)
    weights = collect_weights("c", "layerwise-offload", module)
    with torch.no_grad():
        made = resources.store.make_parcel("c", "layer", weights, writable)
    return made, resources.store.host.held_bytes


@pytest.mark.parametrize(
    ("tier", "in_file", "writable", "expected"),
    [
        (None, True, False, "pinned"),
        ("pinned", True, False, "pinned"),
        ("pageable", True, False, "pageable"),
        ("pageable", False, False, "pageable"),
        ("mapped", True, False, "mapped"),
        ("mapped", False, False, "pageable"),  # it is in memory already
        ("mapped", True, True, "pageable"),  # it may be written to
    ],
)
def test_weights_get_the_tier_of_their_plan(tier: str | None, in_file: bool, writable: bool, expected: str) -> None:
    made, held_bytes = parcel(tier, in_file=in_file, writable=writable)
    assert made.blob.tier == expected
    assert held_bytes == (0 if expected == "mapped" else made.size_bytes)
