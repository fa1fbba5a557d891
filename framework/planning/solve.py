"""One item from each group, least seconds inside several capacities, by branch and bound. No torch.

A knapsack with multiple choices and several dimensions. Bounds: the best of each remaining group by itself, and a
Lagrangian relaxation of the capacities; the first good answer comes from a greedy descent. The answer is exact unless
more than `PATIENCE` items had to be looked at: that takes dozens of groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

ROUNDS = 40  # of the search for good multipliers
PATIENCE = 50_000
SAME = 1e-12  # relative: less is no gain


@dataclass(frozen=True, slots=True)
class Item:
    """A way to serve its group. `uses` has one amount for each capacity; among equals the lower `rank` wins."""

    seconds: float
    rank: int
    uses: tuple[int, ...]
    tag: Any = None


def solve(groups: Sequence[Sequence[Item]], capacities: Sequence[int], below: float = inf) -> list[Item] | None:
    """Return the fastest choice of one item a group that is faster than `below`, or None where there is none.

    Quick only where `undominated` has gone over each group.
    """
    if any(not group for group in groups):
        return None
    search = _Search([sorted(group, key=_speed) for group in groups], tuple(capacities), below)
    return search.run()


def undominated(items: Sequence[Item]) -> list[Item]:
    """Return the items that no other beats in everything, fastest first."""
    columns = _columns(items)
    found: list[tuple[Item, tuple[int, ...]]] = []
    for item in sorted(items, key=_speed):
        own = tuple(item.uses[column] for column in columns)
        if not any(all(a <= b for a, b in zip(other, own, strict=True)) for _, other in found):
            found.append((item, own))
    return [item for item, _ in found]


def _speed(item: Item) -> tuple[float, int, tuple[int, ...]]:
    return item.seconds, item.rank, item.uses


def _columns(items: Sequence[Item]) -> list[int]:
    """One column of each that are alike up to a constant: they tell the same items apart."""
    kept: dict[tuple[int, ...], int] = {}
    for column in range(len(items[0].uses)):
        least = min(item.uses[column] for item in items)
        kept.setdefault(tuple(item.uses[column] - least for item in items), column)
    return list(kept.values())


class _Search:
    def __init__(self, groups: list[list[Item]], capacities: tuple[int, ...], below: float) -> None:
        order = sorted(range(len(groups)), key=lambda i: groups[i][0].seconds - groups[i][-1].seconds)
        self._places = order
        self._groups = [groups[i] for i in order]
        self._capacities = capacities
        self._rows = range(len(capacities))
        self.best = below
        self.found: list[Item] | None = None
        self._patience = PATIENCE
        count = len(groups)
        self._least_s = [0.0] * (count + 1)
        self._least = [(0,) * len(capacities)] * (count + 1)
        for i in reversed(range(count)):
            self._least_s[i] = self._least_s[i + 1] + self._groups[i][0].seconds
            own = (min(item.uses[row] for item in self._groups[i]) for row in self._rows)
            self._least[i] = tuple(a + b for a, b in zip(own, self._least[i + 1], strict=True))

    def run(self) -> list[Item] | None:
        if all(self._least[0][row] <= self._capacities[row] for row in self._rows):
            self._descend()
            self._relax()
            self._branch(0, 0.0, [0] * len(self._capacities), [])
        if self.found is None:
            return None
        placed = dict(zip(self._places, self.found, strict=True))
        return [placed[i] for i in range(len(placed))]

    def _take(self, items: list[Item], seconds: float) -> None:
        if seconds < self.best * (1 - SAME) or self.best == inf:
            self.best, self.found = seconds, list(items)

    def _descend(self) -> None:
        """Start with the fastest of all and give up what costs least for the room it makes."""
        chosen = [group[0] for group in self._groups]
        for _ in range(sum(len(group) for group in self._groups)):
            used = [sum(item.uses[row] for item in chosen) for row in self._rows]
            over = [max(0, used[row] - self._capacities[row]) for row in self._rows]
            if not any(over):
                self._take(chosen, sum(item.seconds for item in chosen))
                return
            step = self._cheapest(chosen, over)
            if step is None:
                return
            chosen[step[0]] = step[1]

    def _cheapest(self, chosen: Sequence[Item], over: Sequence[int]) -> tuple[int, Item] | None:
        best: tuple[float, int, Item] | None = None
        short = [(row, over[row], 1 / max(1, self._capacities[row])) for row in self._rows if over[row]]
        for number, group in enumerate(self._groups):
            now = chosen[number]
            for item in group:
                relief = 0.0
                for row, lacking, scale in short:
                    gained = now.uses[row] - item.uses[row]
                    relief += (gained if gained < lacking else lacking) * scale
                if relief > 0:
                    price = (item.seconds - now.seconds) / relief
                    if best is None or price < best[0]:
                        best = (price, number, item)
        return None if best is None else (best[1], best[2])

    def _relax(self) -> None:
        """Find prices of the capacities that make the relaxed problem's bound as high as possible."""
        scale = [1.0 / max(1, capacity) for capacity in self._capacities]
        prices = [0.0] * len(self._capacities)
        target = self.best if self.best < inf else self._least_s[0] * 1.5 + 1e-9
        best_bound, best_prices = -inf, prices
        pace = 1.0
        for _ in range(ROUNDS):
            bound, used = self._priced(prices)
            if bound > best_bound:
                best_bound, best_prices = bound, prices
            else:
                pace *= 0.7
            slope = [(used[row] - self._capacities[row]) * scale[row] for row in self._rows]
            norm = sum(value * value for value in slope)
            if norm <= 0 or target - bound <= 0:
                break
            length = pace * (target - bound) / norm
            prices = [max(0.0, prices[row] + length * slope[row] * scale[row]) for row in self._rows]
        self._set_prices(best_prices)

    def _priced(self, prices: Sequence[float]) -> tuple[float, list[int]]:
        bound = -sum(price * capacity for price, capacity in zip(prices, self._capacities, strict=True))
        used = [0] * len(prices)
        for group in self._groups:
            costs = [_price(item, prices) for item in group]
            least = min(range(len(group)), key=costs.__getitem__)
            bound += costs[least]
            used = [a + b for a, b in zip(used, group[least].uses, strict=True)]
        return bound, used

    def _set_prices(self, prices: Sequence[float]) -> None:
        self._prices = tuple(prices)
        self._active = [row for row in self._rows if prices[row] > 0]
        rest = -sum(price * capacity for price, capacity in zip(prices, self._capacities, strict=True))
        self._relaxed = [rest] * (len(self._groups) + 1)
        for i in reversed(range(len(self._groups))):
            self._relaxed[i] = self._relaxed[i + 1] + min(_price(item, prices) for item in self._groups[i])

    def _branch(self, depth: int, seconds: float, used: list[int], items: list[Item]) -> None:
        if depth == len(self._groups):
            self._take(items, seconds)
            return
        least, room, after = self._least[depth + 1], self._capacities, depth + 1
        for item in self._groups[depth]:
            self._patience -= 1
            if self._patience < 0 and self.found is not None:
                return
            spent = seconds + item.seconds
            if spent + self._least_s[after] >= self.best * (1 - SAME) and self.best < inf:
                return  # those that follow are slower still
            now = [a + b for a, b in zip(used, item.uses, strict=True)]
            if any(now[row] + least[row] > room[row] for row in self._rows):
                continue
            relaxed = spent + self._relaxed[after] + sum(self._prices[row] * now[row] for row in self._active)
            if relaxed >= self.best * (1 + SAME):
                continue
            items.append(item)
            self._branch(after, spent, now, items)
            items.pop()


def _price(item: Item, prices: Sequence[float]) -> float:
    return item.seconds + sum(price * amount for price, amount in zip(prices, item.uses, strict=True) if price)
