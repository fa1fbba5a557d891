"""Which components a warm-up should leave ready for the first real request. No torch."""

from collections.abc import Callable, Collection, Iterable, Sequence

from framework.runtime.timeline import Entry
from framework.spec import ComponentUse

RESIDENT = "resident"
SINGLE_DITS = ("transformer", "video_dit")
"""Where one of these has no second expert, `preferred` never overrides its mode."""


def preferred(
    seen: Iterable[ComponentUse], declared: Sequence[Entry], managed: Collection[str], mode: Callable[[str], str]
) -> set[str]:
    """Return the components whose uses are flagged, else that of the first use; `mode` gives a component's mode."""
    uses = [*seen, *(use for _, use in declared)]
    flagged = {use.component for use in uses if use.preferred_ready_after_request}
    chosen = flagged or {use.component for _, use in declared[:1]}
    single = {name for name in SINGLE_DITS if f"{name}_2" not in managed}
    return {name for name in chosen if name not in single or mode(name) == RESIDENT}
