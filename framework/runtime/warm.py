"""Weights that stay loaded between the runs of one process. Imports torch."""

import gc
from dataclasses import dataclass, field

from framework.platforms import Platform
from framework.runtime.load_key import can_be_kept, load_key
from framework.runtime.placed import Placed
from framework.runtime.prompt_cache import PromptCache
from framework.runtime.store import ComponentStore
from framework.runtime.weight_edits import WeightEdits
from framework.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Loaded:
    """The components of a run where its plan has them, idle."""

    platform: Platform
    store: ComponentStore
    placed: Placed
    edits: WeightEdits
    prompt_cache: PromptCache = field(default_factory=PromptCache)


class Warm:
    """Keeps what the last run loaded, for the next one of the same load key; anything else is given up first."""

    def __init__(self) -> None:
        self._key: str | None = None
        self._loaded: Loaded | None = None

    def find(self, spec: RunSpec) -> Loaded | None:
        """Return what is loaded for `spec`; where that is nothing, whatever is loaded is given up."""
        if self._loaded is not None and can_be_kept(spec) and load_key(spec) == self._key:
            return self._loaded
        self.close()
        return None

    def keep(self, spec: RunSpec, loaded: Loaded) -> None:
        """Have `loaded` ready for the next run of `spec`'s load key."""
        if can_be_kept(spec):
            self._key, self._loaded = load_key(spec), loaded

    def close(self) -> None:
        """Give up what is loaded, and its memory."""
        if self._loaded is None:
            return
        platform = self._loaded.platform
        self._loaded.placed.close()
        self.forget()
        gc.collect()
        platform.release_cache()

    def forget(self) -> None:
        """Keep nothing of a run that failed, in whatever state it is."""
        self._key = self._loaded = None
