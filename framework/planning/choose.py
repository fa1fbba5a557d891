"""Where everything goes: the fastest placements inside all budgets, with a reason for each. No torch.

`select` is the one selection function: `plan` prints its answer, `residency=auto` runs on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from framework.planning.capacity import rows_of
from framework.planning.facts import Choice, Forecast
from framework.planning.forecast import forecast
from framework.planning.host import host_use
from framework.planning.options import Option, options_of
from framework.planning.problem import RESIDENT, WHOLE, PlanProblem
from framework.planning.reasons import Alternative, alternatives, reason
from framework.planning.refusal import explain_refusal
from framework.planning.search import candidates
from framework.planning.solve import SAME
from framework.planning.uses import Life, live_through

Options = dict[str, list[Option]]


@dataclass(frozen=True, slots=True)
class Selection:
    """The answer. `choices` has one for each component, with its reason; `alternatives` what was nearest to them.

    `presets` are the seconds of each preset, None where it does not fit; `preset` names the one that was taken because
    nothing else was faster. `options` are all placements that were looked at.
    """

    choices: Mapping[str, Choice]
    forecast: Forecast
    device_bytes: int
    alternatives: tuple[Alternative, ...]
    presets: Mapping[str, float | None]
    preset: str | None = None
    options: Options = field(default_factory=dict, repr=False)


def select(problem: PlanProblem, options: Options | None = None) -> Selection:
    """Return the fastest placements that fit. Raises `CannotFit` with stage, needed and available bytes.

    `options` are those of a problem that differs in its capacities alone: they are the same.
    """
    life = live_through(problem.work, problem.uses)
    rows = rows_of(problem, life)
    options = options or all_options(problem, life)
    chances = candidates(problem, options, rows)
    chosen = chances.fastest([row.capacity_bytes for row in rows])
    compared = {name: _preset_seconds(problem, preset, life) for name, preset in problem.presets.items()}
    best = min(((seconds, name) for name, seconds in compared.items() if seconds is not None), default=(inf, ""))
    if chosen is None and best[0] == inf:
        raise explain_refusal(problem, life, rows, options, chances)
    choices = {name: option.choice for name, option in (chosen or {}).items()}
    foretold = forecast(problem, choices, life) if chosen is not None else None
    preset = None
    if foretold is None or best[0] < foretold.seconds * (1 - SAME):
        preset = best[1]
        choices = dict(problem.presets[preset])
        foretold = forecast(problem, choices, life)
    if chosen is None or preset is not None:
        told = {name: replace(choice, reason=f"as preset '{preset}' has it") for name, choice in choices.items()}
        return Selection(_with_unknown(problem, told), foretold, problem.device_bytes, (), compared, preset, options)
    told = {name: replace(option.choice, reason=reason(problem, rows, chosen, name)) for name, option in chosen.items()}
    near = alternatives(problem, rows, options, chosen)
    return Selection(_with_unknown(problem, told), foretold, problem.device_bytes, near, compared, None, options)


def all_options(problem: PlanProblem, life: Life) -> Options:
    """Return every placement that is looked at, by component."""
    rates = problem.make_rates()
    found: Options = {}
    for name in problem.known:
        spans = [span for span in life.spans if span.component == name]
        found[name] = options_of(problem, name, spans, rates)
    return found


def _preset_seconds(problem: PlanProblem, choices: Mapping[str, Choice], life: Life) -> float | None:
    """Return a preset's seconds, None where it does not fit or is not what the user has fixed."""
    if any(not _granted(problem, choice) for choice in choices.values()):
        return None
    if host_use(problem, choices).over_bytes:
        return None
    foretold = forecast(problem, choices, life)
    fits = foretold.peak_bytes <= problem.device_bytes and foretold.host_bytes <= problem.host_memory.available_bytes
    disk = problem.budgets.disk
    return foretold.seconds if fits and (disk is None or foretold.disk_bytes <= disk) else None


def _granted(problem: PlanProblem, choice: Choice) -> bool:
    wish = problem.wishes.get(choice.component)
    if wish is None:
        return True
    knobs = ("mode", "prefetch", "resident", "policy", "lifetime", "tier")
    return all(getattr(wish, knob) in (None, getattr(choice, knob)) for knob in knobs)


def _with_unknown(problem: PlanProblem, choices: Mapping[str, Choice]) -> dict[str, Choice]:
    """Components of unknown size come for their uses only: they may be small or not."""
    found = dict(choices)
    for name in problem.unknown:
        wish = problem.wishes.get(name)
        mode = wish.mode if wish is not None and wish.mode is not None else WHOLE
        if problem.hardware.unified and (wish is None or wish.mode is None):
            mode = RESIDENT
        found[name] = Choice(component=name, mode=mode, reason="nobody knows its size; it is in no sum of this plan")
    return {name: found[name] for name in problem.components if name in found}
