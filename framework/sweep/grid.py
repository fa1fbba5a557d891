"""From axes and points to the jobs of a sweep, as words; nothing is composed here. No torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from framework.errors import ConfigError, did_you_mean
from framework.sweep.axes import Axis, Value
from framework.sweep.words import show

MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Assignment:
    """One key of one job: the word that says it, and the plain value; `where` is its place if it stands in a file."""

    key: str
    word: str
    value: Any
    where: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is swept: every combination of `axes` but those that an entry of `exclude` matches, then each point."""

    axes: tuple[Axis, ...] = ()
    points: tuple[tuple[Assignment, ...], ...] = ()
    exclude: tuple[Mapping[str, Any], ...] = ()
    exclude_where: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that differ between jobs, in the order of the axes."""
        listed = [axis.key for axis in self.axes] + [own.key for point in self.points for own in point]
        return tuple(dict.fromkeys(listed))

    def jobs(self) -> list[tuple[Assignment, ...]]:
        """Return what each job sets, in order. Raises `ConfigError` for too many, and for entries that match none."""
        count = math.prod(len(axis.values) for axis in self.axes) + len(self.points)
        if count > MAX_JOBS:
            raise ConfigError.of("", f"{count} jobs; a sweep has at most {MAX_JOBS}")
        self._check_exclude()
        found = [job for job in self._combinations() if not any(_matches(entry, job) for entry in self.exclude)]
        found += self.points
        if not found:
            raise ConfigError.of("sweep.exclude", "no job is left", self.exclude_where)
        return found

    def _combinations(self) -> Iterator[tuple[Assignment, ...]]:
        if not self.axes and self.points:
            return
        yield from product(*([_assigned(axis, value) for value in axis.values] for axis in self.axes))

    def _check_exclude(self) -> None:
        known = {axis.key: [value.value for value in axis.values] for axis in self.axes}
        for number, entry in enumerate(self.exclude):
            for key, value in entry.items():
                place = f"sweep.exclude[{number}].{key}"
                if key not in known:
                    raise ConfigError.of(place, "is no axis", self.exclude_where, did_you_mean(key, known))
                if not any(_same(value, other) for other in known[key]):
                    values = ", ".join(show(other) for other in known[key][:8])
                    reason = f"'{show(value)}' is no value of this axis"
                    raise ConfigError.of(place, reason, self.exclude_where, f"it has {values}")


def _assigned(axis: Axis, value: Value) -> Assignment:
    return Assignment(axis.key, value.word, value.value, axis.where if axis.of_file else "")


def _matches(entry: Mapping[str, Any], job: Sequence[Assignment]) -> bool:
    values = {own.key: own.value for own in job}
    return bool(entry) and all(key in values and _same(value, values[key]) for key, value in entry.items())


def _same(one: Any, other: Any) -> bool:
    """Equal, and both truth values or neither: 1 is not true here."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
