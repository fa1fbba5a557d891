"""What looks at a run from inside, beside hearing its events: a tracer, or a comparison. No torch at import."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import nn

    from framework.platforms.protocol import Platform


class Watch(Protocol):
    """Given to `execute`, which asks it before anything is loaded and again around all requests."""

    def watch(self, platform: "Platform") -> "Platform":
        """Return the platform that the run is to use."""

    def layers(
        self, modules: "Mapping[str, nn.Module]", paths: Mapping[str, tuple[str, ...]], compiled: bool = False
    ) -> AbstractContextManager[None]:
        """Look at these components in the block; `paths` are their lists of layers, `compiled`: some of them are."""
