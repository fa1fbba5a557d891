"""Finds the rates at which forecasts would have been right, from what was foretold and measured. No torch.

A stage takes `rest + sum(seconds of a rate / factor of that rate)`; factors are found that explain all stages, each
step sharing out what is left to explain by how much of a stage goes into a rate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

STEPS = 400
LEAST_SHARE = 0.25
"""A rate is learned where it is at least this much of some stage."""
BOUNDS = (1 / 50, 50.0)
"""No rate is believed to be further from the truth than this."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One stage of one run: seconds by the rate they depend on as foretold, those in all, and what it took."""

    spent_s: Mapping[str, float]
    expected_s: float
    measured_s: float

    @property
    def rest_s(self) -> float:
        return max(0.0, self.expected_s - sum(self.spent_s.values()))

    def seconds(self, factors: Mapping[str, float]) -> float:
        """Return what the stage would take with rates that many times as fast."""
        return self.rest_s + sum(own / factors.get(rate, 1.0) for rate, own in self.spent_s.items())


def learn(stages: Sequence[Observed]) -> dict[str, float]:
    """Return by how much each rate that can be told is faster than was assumed."""
    factors = dict.fromkeys(sorted({rate for stage in stages for rate in _large(stage)}), 1.0)
    for _ in range(STEPS):
        changes = {rate: _change(rate, stages, factors) for rate in factors}
        factors = {rate: min(BOUNDS[1], max(BOUNDS[0], own * changes[rate])) for rate, own in factors.items()}
        if all(abs(change - 1) < 1e-6 for change in changes.values()):
            break
    return factors


def error(stages: Sequence[Observed], factors: Mapping[str, float]) -> float:
    """Return the middle one of the shares by which stages are off."""
    return median(abs(stage.seconds(factors) / stage.measured_s - 1) for stage in stages)


def _large(stage: Observed) -> set[str]:
    return {rate for rate, own in stage.spent_s.items() if own >= LEAST_SHARE * stage.expected_s}


def _change(rate: str, stages: Sequence[Observed], factors: Mapping[str, float]) -> float:
    """The factor by which `rate` alone would have to change, over the stages it is part of, by its share of each."""
    weights, total = 0.0, 0.0
    for stage in stages:
        own = stage.spent_s.get(rate, 0.0) / factors[rate]
        if own <= 0:
            continue
        learned = sum(seconds / factors[name] for name, seconds in stage.spent_s.items() if name in factors)
        fixed = stage.seconds(factors) - learned
        wanted = max(stage.measured_s - fixed, 0.02 * stage.measured_s)
        share = own / learned
        total += share * math.log(learned / wanted)
        weights += share
    return math.exp(total / weights) if weights else 1.0
