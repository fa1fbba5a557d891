"""The cases of the equality suite: the full product of plans, and a pairwise selection of it. No torch."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from itertools import combinations, product

PIPELINES = (
    "wan22", "wan21_i2v", "flux", "flux2_klein", "qwen_image", "sdxl", "sd15", "zimage", "ltx", "sana",
)  # fmt: skip
MODES = ("layerwise-offload", "component-offload", "dit-layerwise", "dit-whole")
"""Two plans for all components alike, and two mixed ones: see `equality_rig.placements`."""
PREFETCH = ("0", "1", "2", "all")
RESIDENT = ("0", "1", "50%", "all", "16KiB")
POLICIES = ("leading", "strided")
TIERS = ("pinned", "pageable", "mapped", "scarce")
"""`scarce`: room to pin some layers, so that tiers mix."""
LIFETIMES = ("use", "retained", "permanent")


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to place a pipeline; the knobs mean nothing where nothing is streamed."""

    mode: str
    prefetch: str = "1"
    resident: str = "0"
    policy: str = "strided"
    tier: str = "pinned"
    lifetime: str = "use"

    def __str__(self) -> str:
        return "-".join(astuple(self))


NAMES = tuple(field.name for field in fields(Plan))
FACTORS = (MODES, PREFETCH, RESIDENT, POLICIES, TIERS, LIFETIMES)


def full_product() -> list[Plan]:
    """Every mode, prefetch, resident, policy and tier, all components alike."""
    plans = [Plan("component-offload", tier=tier) for tier in TIERS]
    return plans + [Plan("layerwise-offload", *values) for values in product(*FACTORS[1:5])]


def pairwise() -> list[Plan]:
    """A few plans in which every two values of different factors meet at least once; the same ones every time.

    Greedy: each plan starts at the first pair that is still missing and takes, factor by factor, the value that meets
    most missing pairs.
    """
    missing = set(_pairs())
    plans = []
    while missing:
        first = min(missing, key=_sort_key)
        chosen = dict(first)
        for index, values in enumerate(FACTORS):
            if index not in chosen:
                chosen[index] = max(values, key=lambda value: _meets(chosen, index, value, missing))
        missing -= set(combinations(sorted(chosen.items()), 2))
        plans.append(Plan(*(chosen[index] for index in range(len(FACTORS)))))
    return plans


def selection() -> list[tuple[str, Plan]]:
    """The pairwise plans dealt out to the pipelines in turn, so that each meets several."""
    return [(PIPELINES[index % len(PIPELINES)], plan) for index, plan in enumerate(pairwise())]


Choice = tuple[int, str]
"""Number of a factor and one of its values."""


def _pairs() -> Iterator[tuple[Choice, Choice]]:
    for (i, left), (j, right) in combinations(enumerate(FACTORS), 2):
        yield from (((i, one), (j, other)) for one in left for other in right)


def _sort_key(pair: tuple[Choice, Choice]) -> tuple[int, ...]:
    return tuple(number for index, value in pair for number in (index, FACTORS[index].index(value)))


def _meets(chosen: dict[int, str], index: int, value: str, missing: set[tuple[Choice, Choice]]) -> int:
    pairs = (tuple(sorted([(index, value), other])) for other in chosen.items())
    return sum(pair in missing for pair in pairs)
