"""Weights that stay loaded between the runs of one process. Imports torch."""

import gc
from dataclasses import dataclass, field, replace
from typing import Any

from framework.loading.spares import Spares
from framework.platforms import Platform
from framework.runtime.load_key import can_be_kept, load_key
from framework.runtime.placed import Placed
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.store import ComponentStore
from framework.runtime.weight_edits import WeightEdits
from framework.spec import RunSpec

STATIC = ("cpu", "sim")
"""Devices that are planned by their profile, whatever is on them."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The components of a run where its plan has them, idle."""

    platform: Platform
    store: ComponentStore
    placed: Placed
    edits: WeightEdits
    prompt_cache: PromptCache = field(default_factory=PromptCache)


class Warm:
    """Keeps what the last run loaded, for the next one of the same load key; anything else is given up first.

    `moves`: other placements are no reason to load anew, for weights are moved; and a run that was interrupted or
    refused leaves them.
    """

    def __init__(self, moves: bool = False) -> None:
        self._moves = moves
        self._key: str | None = None
        self._loaded: Loaded | None = None
        self._asked: tuple[object, ...] | None = None
        self._decided: RunSpec | None = None
        self._spares = Spares()

    def decision(self, spec: RunSpec) -> RunSpec | None:
        """Return `spec` decided as the last run was, where the same was asked of the planner; None: decide anew.

        Kept weights would then count as memory that others hold, so they are given up on a device that tells.
        """
        if self._loaded is None or self._decided is None:
            return None
        if _asked(spec) == self._asked:
            then = self._decided
            decided: dict[str, Any] = {"placements": then.placements, "numerics": then.numerics, "plan": then.plan}
            return replace(spec, **decided, planned=False, next_best=then.next_best)
        if self._loaded.platform.kind not in STATIC and (spec.planned or not self._moves):
            self.close()
        return None

    def find(self, spec: RunSpec) -> Loaded | None:
        """Return what is loaded for the decided `spec`; where that is nothing, whatever is loaded is given up.

        What both have in common, such as an encoder, is then among the `spares`.
        """
        if self._loaded is not None and can_be_kept(spec) and self._key_of(spec) == self._key:
            return self._loaded
        store, then = self._loaded.store if self._loaded is not None else None, self._decided
        self.close()
        if store is not None and then is not None and can_be_kept(spec) and _computes_alike(then, spec):
            store.give_away(self._spares)
        return None

    def take_spares(self) -> Spares:
        """Return the weights that are left of what was given up; they are the caller's."""
        spares, self._spares = self._spares, Spares()
        return spares

    def keep(self, asked: RunSpec, spec: RunSpec, loaded: Loaded) -> None:
        """Have `loaded` ready for the next run of the load key of `spec`, to which `asked` was decided."""
        if can_be_kept(spec):
            self._key, self._loaded = self._key_of(spec), loaded
            self._asked, self._decided = _asked(asked), spec

    def close(self) -> None:
        """Give up what is loaded, and its memory."""
        if self._loaded is None:
            return
        platform = self._loaded.platform
        self._loaded.placed.close()
        self.forget()
        gc.collect()
        platform.release_cache()

    def broke_off(self, status: str) -> None:
        """A run ended as `status` says; one that failed leaves its weights in whatever state they are."""
        if not (self._moves and status in ("interrupted", "refused")):
            self.forget()

    @property
    def loaded(self) -> Loaded | None:
        """What is kept now."""
        return self._loaded

    def forget(self) -> None:
        """Keep nothing of a run that failed, in whatever state it is."""
        self._key = self._loaded = self._asked = self._decided = None

    def _key_of(self, spec: RunSpec) -> str:
        return load_key(spec, placed=not self._moves)


def _computes_alike(then: RunSpec, spec: RunSpec) -> bool:
    """Whether modules of one run serve another as they are: on the same device, with the same switches set.

    Not beside a bound of host memory, for they lie there before anybody books them.
    """
    same = [(one.device, one.config.get("hardware"), repr(one.numerics)) for one in (then, spec)]
    return same[0] == same[1] and spec.budget.host is None


def _asked(spec: RunSpec) -> tuple[object, ...]:
    """What a plan depends on: the load key before it, and sizes; steps only where they decide placements."""
    steps = [request.num_inference_steps for request in spec.requests] if spec.planned else []
    sizes = [(one.height, one.width, one.num_frames, one.num_outputs, one.guidance_scale) for one in spec.requests]
    return (load_key(spec), spec.planned, *steps, *sizes)
