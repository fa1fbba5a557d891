"""`download`: fetch what a run would need, ahead of time. No torch."""

import sys

from framework.commands.fetching import compose_fetched, fetch_missing
from framework.compose.arguments import COMPOSING, Flags
from framework.errors import ConfigError, LoadError
from framework.graph import build_graph
from framework.loading.hub import amount

SUMMARY = "Fetch the files that a run would need and this machine lacks: nothing else, resumable."
EXAMPLES = (
    "framework download pipeline=wan2",
    "framework download pipeline=diffusers pipeline.model.source=OWNER/NAME pipeline.model.variant=fp16",
    "framework download pipeline=wan2 pipeline.components.transformer.source=OWNER/NAME/FILE.gguf",
)
ACCEPTED = COMPOSING


def main(overrides: list[str], flags: Flags) -> int:
    """Fetch and say where the model is; return 0. Raises `ConfigError` and `LoadError`."""
    from framework.loading.source import locate_model

    def say(line: str) -> None:
        if not flags.quiet:
            print(line, file=sys.stderr, flush=True)

    spec = compose_fetched(overrides, flags, say, needs_prompt=False)
    try:
        used = build_graph(spec.pipeline).used_components()
        fetched = fetch_missing(spec.pipeline, used, spec.loras, say, progress=not flags.quiet, bound=spec.budget.disk)
    except (ConfigError, LoadError) as error:
        error.locate(spec.provenance)
        raise
    say(f"fetched {amount(fetched)}" if fetched else "everything is here")
    print(locate_model(spec.pipeline.model, spec.pipeline.hints))
    return 0
